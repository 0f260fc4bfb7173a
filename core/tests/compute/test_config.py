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


def test_a_long_value_is_cut_in_the_error() -> None:
    with pytest.raises(CheckpointError) as caught:
        Config({"k": "y" * 10_000}, Path("f")).size("k")
    assert len(str(caught.value)) < 200


def test_strict_json_has_no_second_meaning() -> None:
    assert parse_json(b'{"a": NaN, "a": 1}', Path("f")) == {"a": 1}
    for text in (b'{"a": 1, "a": 1}', b'{"a": NaN}', b'{"a": [-Infinity]}', b'{"b": {"a": 1, "a": 2}}'):
        with pytest.raises(CheckpointError, match="is not valid JSON"):
            parse_json(text, Path("f"), strict=True)


def test_a_quantised_repository_is_refused_by_its_method() -> None:
    Config({}, Path("f")).check_plain()
    with pytest.raises(CheckpointError, match="quantization_config says 'gptq'"):
        Config({"quantization_config": {"quant_method": "gptq"}}, Path("f")).check_plain()
