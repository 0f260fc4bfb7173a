"""How Inkling writes answers: messages, each with a token that says what kind of content it has.

The prompt ends inside the head of the first message, where only the name of a tool may stand. The head of a message may
be left out, and so may the end of the last one. Text that no token announces is content.
"""

from __future__ import annotations

import re

from colibri.chat.calls import JsonCalls
from colibri.chat.output import TEXT, OutputFormat

from .prompt import CALL, END, END_SAMPLING, MODEL, THINKING
from .prompt import TEXT as CONTENT

#: Kinds of content that are shown: text, calls that are not written as JSON, and what went wrong with a tool.
_SHOWN = (CONTENT.token, "<|content_invoke_tool_text|>", "<|content_tool_error|>")

#: Letters, digits and punctuation of names, perhaps in blanks. Longer words than this are no tool's name.
_NAME = re.compile(r"\s{0,8}[\w.:/-]{0,128}\s{0,8}")

_ENDS = (END.token, END_SAMPLING.token)


class _Head:
    """Tells the name in the head of a message from text. What it names is said again inside the call."""

    cut = False

    def __init__(self) -> None:
        self._text = ""

    def read(self, text: str) -> bool:
        self._text += text
        return _NAME.fullmatch(self._text) is not None

    def finish(self) -> None:
        return None


class _Heads:
    def guess(self) -> _Head:
        return _Head()


def _moves(call: tuple[str, ...]) -> dict[tuple[str, str], tuple[str, ...]]:
    """The moves between messages and inside those that are shown; `call` is what a call's token does."""
    moves: dict[tuple[str, str], tuple[str, ...]] = {("head", TEXT): ("content",), ("between", TEXT): ("content",)}
    for state in ("head", "between", "content", "reasoning"):
        held = ("text",) if state == "head" else ()
        moves[state, THINKING.token] = ("reasoning",)
        moves[state, CALL.token] = call
        moves[state, MODEL.token] = ("head", *held)
        moves |= {(state, kind): ("content",) for kind in _SHOWN}
        moves |= {(state, end): ("between", *held) for end in _ENDS}
    return moves


WITH_CALLS = OutputFormat(
    moves={
        **_moves(("call", "open")),
        **{("call", end): ("between", "close") for end in _ENDS},
        ("call", MODEL.token): ("head", "close"),
        ("call", CALL.token): ("call", "open"),
    },
    kinds={"head": "guess", "between": "drop", "call": "body"},
    start="head",
    calls=JsonCalls(arguments="args"),
    guess=_Heads(),
)

#: Without tools, what a call says is text as well.
WITHOUT_CALLS = OutputFormat(
    moves=_moves(("content",)), kinds={"head": "guess", "between": "drop"}, start="head", guess=_Heads()
)
