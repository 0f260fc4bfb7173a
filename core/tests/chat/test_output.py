"""What an output format may not be, and the blanks around calls; how formats read outputs is in test_formats.py."""

from __future__ import annotations

from typing import Any

import pytest

from colibri.chat.blocks import BLOCKS
from colibri.chat.calls import JsonCalls
from colibri.chat.output import TEXT, OutputFormat, OutputParser, merged
from colibri.errors import PluginError
from colibri.testing.conformance import check_events

CALL = {("content", "<call>"): ("call", "open")}


@pytest.mark.parametrize(
    ("format", "message"),
    [
        ({"moves": CALL}, "state 'call' has no kind"),
        ({"start": "opening"}, "state 'opening' has no kind"),
        ({"starts": (("<t>", "thoughts"),)}, "state 'thoughts' has no kind"),
        ({"moves": CALL, "kinds": {"call": "text"}}, "state 'call' is 'text'; the kinds are content, reasoning, "),
        ({"moves": CALL, "kinds": {"call": "body"}}, "state 'call' reads calls, but the format has no call syntax"),
        ({"start": "x", "kinds": {"x": "guess"}}, "state 'x' guesses, but has no guess or no text move"),
        ({"moves": {("content", TEXT): ("content", "open")}}, "the text move of state 'content' has actions"),
    ],
)
def test_a_format_that_cannot_work_is_refused(format: dict[str, Any], message: str) -> None:
    with pytest.raises(PluginError, match="output format: ") as caught:
        OutputFormat(**format)
    assert message in str(caught.value)


def test_a_format_that_can_work_is_taken() -> None:
    assert OutputFormat(moves=CALL, kinds={"call": "body"}, calls=JsonCalls()).states == {"content", "call"}


GOOD = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'


@pytest.mark.parametrize(
    ("raw", "content"),
    [
        (f"Sure.\n{GOOD}\nDone.", "Sure.\nDone."),
        (f"{GOOD}\n\nDone.", "Done."),
        (f"Sure.\n{GOOD}\n{GOOD}\n", "Sure."),
        ("Write <tool_call> and </tool_call> around it.", "Write <tool_call> and </tool_call> around it."),
        (f"Not <tool_call>x</tool_call>\n {GOOD} that.", "Not <tool_call>x</tool_call> that."),
        (f"{GOOD}\n<tool_call>x</tool_call>", "<tool_call>x</tool_call>"),
        (f"Sure.\n{GOOD}\n<tool_call>x", "Sure.\n<tool_call>x"),
    ],
)
def test_blanks_around_calls_are_kept_where_they_part_texts(raw: str, content: str) -> None:
    shown = []
    for size in (1, len(raw)):
        parser = OutputParser(BLOCKS)
        events = [event for at in range(0, len(raw), size) for event in parser.feed(raw[at : at + size])]
        events = merged(events + parser.finish())
        check_events(events, raw)
        shown.append(events)
    assert shown[0] == shown[1]
    assert "".join(event.text for event in shown[0] if event.kind in ("content", "tool_cut")) == content
