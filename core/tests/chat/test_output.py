"""What an output format may not be; how formats read outputs is in test_formats.py."""

from __future__ import annotations

from typing import Any

import pytest

from colibri.chat.calls import JsonCalls
from colibri.chat.output import TEXT, OutputFormat
from colibri.errors import PluginError

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
