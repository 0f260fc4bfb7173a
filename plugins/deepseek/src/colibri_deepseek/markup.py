"""What the prompts of all variants are made of: control tokens, answers, and calls in DSML.

DSML is this family's markup for calls: tags whose names begin with the control token of that name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from colibri.chat.conversation import MediaPart, Tool, ToolCall, Turn
from colibri.chat.jsontext import dumps
from colibri.chat.prompt import Piece, Special
from colibri.chat.tools import DEMAND
from colibri.errors import BadRequest

BOS = Special("<｜begin▁of▁sentence｜>")
EOS = Special("<｜end▁of▁sentence｜>")
USER = Special("<｜User｜>")
ASSISTANT = Special("<｜Assistant｜>")
THINK = Special("<think>")
THINK_END = Special("</think>")
DSML = Special("｜DSML｜")


def with_system(turns: Sequence[Turn]) -> tuple[Turn, ...]:
    """The turns with a system turn among them, for the tools to be declared in; an empty one if there was none."""
    return tuple(turns) if any(turn.role == "system" for turn in turns) else (Turn("system"), *turns)


def declare(head: Sequence[Piece | str], tools: Sequence[Tool], tail: str, *, demand: bool) -> Iterator[Piece | str]:
    """The tool block, which stands behind the system text."""
    yield from head
    yield "\n".join(dumps(tool.declaration["function"]) for tool in tools)
    yield tail
    if demand:
        yield DEMAND + "\n"


def opening(thinks: bool) -> tuple[Piece, Piece]:
    """What stands in front of an answer."""
    return ASSISTANT, THINK if thinks else THINK_END


def answer(turn: Turn, block: str, *, thinks: bool, closed: bool = True) -> Iterator[Piece | str]:
    """An assistant turn behind its opening, with calls in a block of the given name. A turn that `thinks` shows its
    reasoning; one that is not `closed` is left open behind its text."""
    if turn.spoken is not None and closed and _fits(turn, turn.spoken.text.lstrip(), thinks):
        yield turn.spoken
    else:
        if thinks:
            yield turn.reasoning or ""
            yield THINK_END
        yield text_of(turn)
        if turn.calls:
            yield "\n\n"
            yield from _calls(block, turn.calls)
    if closed:
        yield EOS


def text_of(turn: Turn) -> str:
    """The turn's text. Raises BadRequest if it holds anything else."""
    if any(isinstance(part, MediaPart) for part in turn.content or ()):
        raise BadRequest("DeepSeek reads text only: leave out images and audio.", param="messages")
    return turn.text


def instruction(turn: Turn) -> str:
    """The text of a developer's turn. Raises BadRequest if it has none."""
    if not turn.text:
        raise BadRequest("Invalid message for role `developer`: it must have text.", param="messages")
    return text_of(turn)


def _fits(turn: Turn, said: str, thinks: bool) -> bool:
    """Whether what the model wrote belongs behind the opening it would now stand behind. Past reasoning may be dropped by
    now, or thinking be switched on or off."""
    thought = bool(turn.reasoning) or said.startswith(THINK_END.token)
    return (thought or not said.startswith(turn.text.strip())) if thinks else not thought


def _calls(block: str, calls: Sequence[ToolCall]) -> Iterator[Piece | str]:
    yield from _tag(f"{block}>\n")
    for call in calls:
        yield from _tag(f'invoke name="{call.name}">\n')
        # Arguments that are no object are the value of one parameter.
        arguments = call.arguments if isinstance(call.arguments, dict) else {"arguments": call.arguments}
        for number, (name, value) in enumerate(arguments.items()):
            raw = isinstance(value, str)
            yield "\n" if number else ""
            yield from _tag(f'parameter name="{name}" string="{"true" if raw else "false"}">')
            yield value if isinstance(value, str) else dumps(value)
            yield from _tag("parameter>", end=True)
        yield "\n"
        yield from _tag("invoke>\n", end=True)
    yield from _tag(f"{block}>", end=True)


def _tag(rest: str, *, end: bool = False) -> tuple[str, Piece, str]:
    return "</" if end else "<", DSML, rest
