"""What a model's raw output means: the currency between the output engine and the API surfaces."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Kind = Literal["content", "reasoning", "tool_start", "tool_args", "tool_end", "tool_cut", "swallowed"]


class Event(Struct, frozen=True):
    """One stretch of the raw output stream.

    `text` is what a client sees: content or reasoning text, the tool's name (`tool_start`), a fragment of the call's
    JSON arguments (`tool_args`; the fragments of a call join to one JSON object), or "" (`tool_end`, `swallowed`).
    `tool_cut` ends a call that the output left incomplete; its `text` is the raw text of the whole block, markers
    and the blanks it would have swallowed included, so that a lenient surface can show it; a call that had no name yet
    has no index either. `span` is the half-open range of characters of the raw stream the
    event stands for: the spans of all events tile the stream. `call` is the index of the tool call, -1 elsewhere.
    """

    kind: Kind
    text: str
    span: tuple[int, int]
    call: int = -1
