from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colibri.chat.calls import BareJson, JsonCalls

NAMES = ("look", "find")


def read(text: str, *, repair: bool = True, size: int | None = None, marked: bool = True) -> tuple[str | None, str, bool]:
    """The name, the arguments and whether the call is whole."""
    reader = JsonCalls().reader(repair)
    parts = []
    step = size or len(text) or 1
    for at in range(0, len(text), step):
        used, made = reader.read("", text[at : at + step])
        parts += made
        if used < len(text[at : at + step]):
            parts += [part for part in reader.close(marked) if part.kind == "tool_cut"]
            break
    else:
        parts += reader.close(marked)
    names = [part.text for part in parts if part.kind == "tool_start"]
    arguments = "".join(part.text for part in parts if part.kind == "tool_args")
    return names[0] if names else None, arguments, parts[-1].kind == "tool_end"


@given(st.dictionaries(st.text(max_size=4), st.integers() | st.text(max_size=6)), st.booleans(), st.integers(1, 9))
def test_arguments_are_handed_on_as_they_were_written(arguments: dict[str, object], first: bool, size: int) -> None:
    call = {"arguments": arguments, "name": "look"} if first else {"name": "look", "arguments": arguments}
    written = json.dumps(call)
    assert read(written, size=size) == ("look", json.dumps(arguments), True)


def test_arguments_stream_before_they_end() -> None:
    reader = JsonCalls().reader(True)
    _, parts = reader.read("", '{"name": "look", "arguments": {"x": "hal')
    assert [(part.kind, part.text) for part in parts] == [
        ("tool_start", "look"),
        ("swallowed", ""),
        ("tool_args", '{"x": "hal'),
    ]


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"name": "f", "arguments": "{\\"a\\": 1}"}', '{"a": 1}'),
        ('{"arguments": "{\\"a\\": 1}", "name": "f"}', '{"a": 1}'),
        ('{"name": "f", "arguments": null}', "{}"),
        ('{"name": "f", "arguments": ""}', "{}"),
        ('{"arguments": " ", "name": "f"}', "{}"),
        ('{"name": "f"}', "{}"),
        ('{"type": "function", "name": "f"}', "{}"),
        ('{"name": "f", "parameters": { }}', "{}"),
        ('{"name": "f", "parameters": {"type": "object"}, "arguments": {"a": 1}}', '{"a": 1}'),
        ('{"id": [1, {"name": "g"}], "name": "f", "arguments": {}, "x": 1}', "{}"),
        ('{"name": "f", "arguments": {"a": "b\nc"}}', '{"a": "b\\nc"}'),
    ],
)
def test_what_is_meant_counts(text: str, arguments: str) -> None:
    for size in (None, 1, 3):
        assert read(text, size=size) == ("f", arguments, True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "f(1)",
        '{"name": 5, "arguments": {}}',
        '{"name": "", "arguments": {}}',
        '{"name": "f", "arguments": []}',
        '{"name": "f", "parameters": {"a": 1}}',
        '{"name": "f", "description": "d", "parameters": {"type": "object"}}',
        '{"name": "f", "arguments": "no object"}',
        '{"name": "f", "arguments": "[1]"}',
        '{"name": "f", "name": "g", "arguments": {}}',
        '{"name": "f", "arguments": {}, "arguments": {}}',
        '{"name": "f", "arguments": {"a": tru}}',
        '{"name": "f", "arguments": {}',
        '{"name": "f", "arguments": {}}}',
        '{"arguments": {}}',
    ],
)
def test_what_is_no_call_is_cut(text: str) -> None:
    for size in (None, 1, 3):
        assert not read(text, size=size)[2]


def test_without_repair_only_the_exact_form_counts() -> None:
    good = '{"name": "f", "arguments": {"a": 1}}'
    assert read(good, repair=False)[2]
    assert not read(good, repair=False, marked=False)[2]
    assert read(good, repair=True, marked=False)[2]
    for text in (
        '{"name": "f"}',
        '{"name": "f", "arguments": ""}',
        '{"name": "f", "arguments": null}',
        '{"name": "f", "arguments": {"a": "b\nc"}}',
    ):
        assert read(text, repair=True)[2]
        assert not read(text, repair=False)[2]


@given(st.data())
def test_a_bare_call_is_told_from_text_however_it_is_cut(data: st.DataObject) -> None:
    pool = [
        '{"name": "look"',
        '{"name": "gone"',
        ', "arguments": ',
        '{"x": "}"}',
        "}",
        "```json\n",
        "```",
        " ",
        "\n",
        "x",
        '"{}"',
    ]
    text = "".join(data.draw(st.lists(st.sampled_from(pool), max_size=7)))
    whole, pieces = BareJson(JsonCalls(), NAMES).guess(), BareJson(JsonCalls(), NAMES).guess()
    seen = whole.finish() if whole.read(text) else None
    possible = True
    for char in text:
        possible = possible and pieces.read(char)
    assert (pieces.finish() if possible else None) == seen
    inner = text.strip().removeprefix("```json").removesuffix("```").strip()
    try:
        value = json.loads(inner)
    except ValueError:
        value = None
    is_call = isinstance(value, dict) and value.get("name") == "look" and isinstance(value.get("arguments"), dict)
    if is_call and text.strip() == inner:
        assert seen is not None
        assert (seen[0], json.loads(seen[1])) == ("look", value["arguments"])
    elif not is_call:
        assert seen is None


def test_text_that_can_be_no_bare_call_is_let_go_at_once() -> None:
    for text in (
        "I",
        "`a`",
        "[",
        '{"name": "gone"',
        '{"name": "look", "arguments": "',
        "```python",
        "``` json",
        '{"name": 5',
    ):
        guess = BareJson(JsonCalls(), NAMES).guess()
        assert [guess.read(char) for char in text].count(False) >= 1
    guess = BareJson(JsonCalls(), NAMES).guess()
    assert all(guess.read(char) for char in ' \n```json \n{"arguments": {"a": {}}, "name": "look"}\n```\n ')
    assert not guess.read(".")
