from __future__ import annotations

from pathlib import Path

import pytest

from colibri.compute.config import Config, parse_json
from colibri.errors import CheckpointError

VALUES = {"n": 3, "x": 0.5, "yes": True, "word": "w", "null": None, "nan": float("nan"), "big": 10**40, "inner": {"n": -1}}


def reads(prefix: str = "") -> Config:
    return Config({prefix + key: value for key, value in VALUES.items()}, Path("f"), prefix)


@pytest.mark.parametrize("prefix", ["", "arch."])
def test_values_are_read_as_what_they_are(prefix: str) -> None:
    c = reads(prefix)
    assert (c.size("n"), c.number("x"), c.number("n"), c.flag("yes", False), c.word("word")) == (3, 0.5, 3.0, True, "w")
    assert (c.size("absent", 7), c.size("null", 7), c.flag("absent", True), c.number("absent", 2.5)) == (7, 7, True, 2.5)
    assert c.part("absent") is None
    assert c.split("n", 3, "whole", 12) == 4


@pytest.mark.parametrize(
    "read",
    [
        lambda c: c.size("absent"),
        lambda c: c.size("null"),
        lambda c: c.size("x"),
        lambda c: c.size("yes"),
        lambda c: c.size("word"),
        lambda c: c.size("big"),
        lambda c: c.size("n", least=4),
        lambda c: c.size("n", most=2),
        lambda c: c.number("nan"),
        lambda c: c.number("big"),
        lambda c: c.number("yes"),
        lambda c: c.flag("n", True),
        lambda c: c.word("n"),
        lambda c: c.part("n"),
        lambda c: c.split("n", 3, "whole", 13),
        lambda c: c.part("inner").size("n"),
    ],
)
def test_anything_else_names_the_file_and_the_key(read) -> None:
    with pytest.raises(CheckpointError, match=r"^f: arch\.\w+(\.n)? (is|must) "):
        read(reads("arch."))


def test_a_number_may_have_other_bounds() -> None:
    c = Config({"bound": -5.0, "zero": 0}, Path("f"))
    assert c.number("bound", above=-10.0, below=0.0) == -5.0
    for key, bounds in (("zero", {"above": -10.0, "below": 0.0}), ("bound", {"above": -5.0})):
        with pytest.raises(CheckpointError, match=rf"^f: {key} must be a number between -\d+ and "):
            c.number(key, **bounds)


def test_a_value_may_have_several_names() -> None:
    c = Config({"old": 1, "null": None}, Path("f"))
    assert c.spelling("new", "old") == "old"
    assert c.spelling("null", "absent") == "null"


def test_a_list_of_words_is_read_as_what_they_mean() -> None:
    c = Config({"kinds": ["a", "b", "a"], "flags": [0, 1]}, Path("f"))
    assert c.choices("kinds", 3, {"a": 1.5, "b": 2.5}) == (1.5, 2.5, 1.5)
    assert c.choices("flags", 2, {0: "no", 1: "yes"}) == ("no", "yes")
    assert c.choices("absent", 2, {0: 0}) is None


@pytest.mark.parametrize("value", ["ab", ["a"], ["a", "c"], ["a", None], ["a", ["b"]], ["a", True], ["a", 1.0], {"a": 1}])
def test_a_list_with_other_words_names_the_key(value: object) -> None:
    with pytest.raises(CheckpointError, match=r"^f: kinds (must|has) "):
        Config({"kinds": value}, Path("f")).choices("kinds", 2, {"a": 0, "b": 1, 1: 2})


def test_a_long_value_is_cut_in_the_error() -> None:
    with pytest.raises(CheckpointError) as caught:
        Config({"k": "y" * 10_000}, Path("f")).size("k")
    assert len(str(caught.value)) < 200


def test_strict_json_has_no_second_meaning() -> None:
    assert parse_json(b'{"a": NaN, "a": 1}', Path("f")) == {"a": 1}
    for text in (b'{"a": 1, "a": 1}', b'{"a": NaN}', b'{"a": [-Infinity]}', b'{"b": {"a": 1, "a": 2}}'):
        with pytest.raises(CheckpointError, match="is not valid JSON"):
            parse_json(text, Path("f"), strict=True)


def test_what_a_family_does_not_compute_is_refused() -> None:
    c = reads()
    c.only("word", "w")
    c.only("absent", "silu")
    c.without("absent")
    with pytest.raises(CheckpointError, match=r"word.*is 'w', this family computes silu"):
        c.only("word", "silu")
    with pytest.raises(CheckpointError, match=r"yes.*is true, this family has none"):
        c.without("yes")
