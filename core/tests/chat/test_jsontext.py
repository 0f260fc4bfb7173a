from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colibri.chat.jsontext import MAX_DEPTH, ValueScanner, dumps, is_value

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


def scan(pieces: list[str], *, repair: bool = False) -> tuple[str, int, ValueScanner]:
    scanner = ValueScanner(repair=repair)
    out: list[str] = []
    taken = 0
    for piece in pieces:
        used = scanner.scan(piece, 0, out)
        taken += used
        if used < len(piece):
            break
    return "".join(out), taken, scanner


def cuts(data: st.DataObject, text: str) -> list[str]:
    at = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    return [text[i:j] for i, j in zip([0, *at], [*at, len(text)], strict=True)]


@given(VALUES, st.booleans(), st.sampled_from([None, 1]), st.data())
def test_what_json_prints_is_read_to_its_end_and_no_further(
    value: object, ascii: bool, indent: int | None, data: st.DataObject
) -> None:
    text = json.dumps(value, ensure_ascii=ascii, indent=indent)
    out, taken, scanner = scan(cuts(data, text + ",rest"))
    assert (out, taken, scanner.done, scanner.bad) == (text, len(text), True, False)


@given(st.text(alphabet='{}[],:"\\ \ntruefalsn0123.eE+-au\x01é', max_size=12), st.data())
def test_it_accepts_exactly_what_python_accepts(text: str, data: st.DataObject) -> None:
    try:
        json.loads(text, parse_constant=lambda _: 1 / 0)
        valid = True
    except (ValueError, ZeroDivisionError):
        valid = False
    out, taken, scanner = scan(cuts(data, text + "\n"))
    rest = (text + "\n")[taken:]
    assert (scanner.done and not rest.strip()) == valid
    if valid:
        assert json.loads(out) == json.loads(text)


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ('{"a" 1}', 5),
        ("[1,]", 3),
        ('{"a":1,}', 7),
        ("01 ", 2),
        ("tru,", 3),
        ('"\\x"', 2),
        ('"a\nb"', 2),
        ("[1}", 2),
        ("'a'", 0),
    ],
)
def test_bad_text_is_seen_at_the_first_character_that_cannot_stand(text: str, taken: int) -> None:
    for pieces in ([text], list(text)):
        _, used, scanner = scan(pieces)
        assert (used, scanner.bad, scanner.done) == (taken, True, False)


@pytest.mark.parametrize("text", ["1", "-1.5e3", "true", '"a"', "[1, {}]", '{"a": null}'])
def test_one_value_and_nothing_behind_it(text: str) -> None:
    assert is_value(text)
    assert not any(map(is_value, (text[:-1] + "?", text + "]", text + ",", text + " 1", "")))


def test_bare_control_characters_in_strings_can_be_repaired() -> None:
    out, _, scanner = scan(['{"a\n": "b\tc\x00"}'], repair=True)
    assert scanner.done
    assert json.loads(out) == {"a\n": "b\tc\x00"}


def test_nesting_is_limited() -> None:
    assert scan(["[" * MAX_DEPTH + "]" * MAX_DEPTH])[2].done
    assert scan(["[" * (MAX_DEPTH + 1)])[2].bad


def test_templates_print_one_line_with_spaces_and_no_escapes() -> None:
    assert dumps({"b": 1.0, "a": ["é🌧️", None, True]}) == '{"b": 1.0, "a": ["é🌧️", null, true]}'
