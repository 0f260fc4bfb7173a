from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from colibri.cli import convert, main
from colibri.compute.checkpoint import open_checkpoint
from colibri.testing.checkpoints import seeded_weights, write_checkpoint

from ..compute.conftest import CONFIG, SHAPES, Toy


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model that a plugin serves."""

    class Plugins:
        def family_for(self, checkpoint: Any) -> tuple[Any, None]:
            return Toy(), None

    monkeypatch.setattr(convert, "plugins_of", lambda settings: Plugins())
    return write_checkpoint(tmp_path / "published", CONFIG, seeded_weights(SHAPES, 3))


def test_a_model_is_converted_and_told_about(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "converted"
    arguments = ["convert", "--model", str(model), "--out", str(target), "--keep-free", "0"]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert "read again and as written" in said
    assert f"colibri serve --model {target}" in said
    assert open_checkpoint(target).tensor("layer.q.weight").dtype == "i8x16"
    assert main(arguments) == 0  # nothing is left to do


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "x"], "--model"),
        (["--out", "{model}"], "is the checkpoint itself"),
        (["--out", "x", "--keep-free", "-1"], "--keep-free"),
        (["--out", "x", "--keep-free", "999999"], "the disk has"),
    ],
)
def test_what_can_not_be_is_told_in_a_line(
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    given = [argument.format(model=model) for argument in arguments]
    if message != "--model":
        given += ["--model", str(model)]
    assert main(["convert", *given]) == 2
    said = capsys.readouterr().err
    assert said.startswith("colibri: ")
    assert message in said
    assert said.count("\n") == 1
