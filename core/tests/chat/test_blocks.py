from __future__ import annotations

import pytest

from colibri.chat.blocks import print_call
from colibri.chat.conversation import ToolCall


@pytest.mark.parametrize("raw", [False, True])
def test_a_call_is_an_object_on_a_line_of_its_own(raw: bool) -> None:
    printed = print_call(ToolCall("look", {"place": "größe", "n": 1.0}), raw=raw)
    assert printed == '\n{"name": "look", "arguments": {"place": "größe", "n": 1.0}}\n'


def test_arguments_that_were_no_object_become_a_string_or_stay_as_they_were() -> None:
    call = ToolCall("look", 'at "it"')
    assert print_call(call) == '\n{"name": "look", "arguments": "at \\"it\\""}\n'
    assert print_call(call, raw=True) == '\n{"name": "look", "arguments": at "it"}\n'
