"""ChatML, the frame of all Qwen prompts: each turn stands between `<|im_start|>` and `<|im_end|>`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from colibri.chat.conversation import Tool, Turn
from colibri.chat.jsontext import dumps
from colibri.chat.prompt import Piece, Special
from colibri.chat.tools import DEMAND

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


def declared(head: str, tools: Sequence[Tool], tail: Sequence[Piece | str], *, demand: bool) -> Pieces:
    """The tools, a line each between the template's words, and the demand that one is called."""
    yield head
    for tool in tools:
        yield "\n" + dumps(tool.declaration)
    yield from tail
    if demand:
        yield "\n" + DEMAND


def is_result(turns: Sequence[Turn], index: int) -> bool:
    """Whether there is a turn at `index`, and it is a tool's result."""
    return 0 <= index < len(turns) and turns[index].role == "tool"
