"""ChatML, the frame of all Qwen prompts: each turn stands between `<|im_start|>` and `<|im_end|>`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from colibri.chat.conversation import Turn, TurnOptions
from colibri.chat.prompt import Piece, Special
from colibri.errors import BadRequest

IM_START = Special("<|im_start|>")
IM_END = Special("<|im_end|>")
CALL = Special("<tool_call>")
CALL_END = Special("</tool_call>")

#: What stands around a tool's result. The vocabularies up to Qwen2.5 have no tokens for it.
RESULT = (Special("<tool_response>"), Special("</tool_response>"))
RESULT_IN_LETTERS = ("<tool_response>", "</tool_response>")

Pieces = Iterator[Piece | str]


def opened(role: str) -> Pieces:
    """The beginning of a turn."""
    yield IM_START
    yield f"{role}\n"


def closed() -> Pieces:
    """The end of a turn."""
    yield IM_END
    yield "\n"


def result(body: Iterable[Piece | str], tags: Sequence[Piece | str], *, first: bool, last: bool) -> Pieces:
    """A tool's result. Neighbouring results share one user turn, which the `first` of them opens and the `last` closes."""
    if first:
        yield IM_START
        yield "user"
    yield "\n"
    yield tags[0]
    yield "\n"
    yield from body
    yield "\n"
    yield tags[1]
    if last:
        yield from closed()


def is_result(turns: Sequence[Turn], index: int) -> bool:
    """Whether there is a turn at `index`, and it is a tool's result."""
    return 0 <= index < len(turns) and turns[index].role == "tool"


def is_continued(turns: Sequence[Turn], index: int, options: TurnOptions) -> bool:
    """Whether the turn at `index` is the one left open."""
    return options.cue == "continue" and index == len(turns) - 1


def check_continuation(turns: Sequence[Turn], options: TurnOptions) -> None:
    """Raises BadRequest for a continuation of what is no open answer."""
    if options.cue == "continue" and (not turns or turns[-1].role != "assistant" or turns[-1].calls):
        raise BadRequest("Only an assistant message without tool calls can be continued.", param="messages")
