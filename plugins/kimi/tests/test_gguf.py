"""GGUF files as llama.cpp's converter writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import colibri_kimi
from colibri.compute.checkpoint import open_checkpoint
from colibri.testing.gguf import GgufConformance
from colibri_kimi import Kimi

DATA = Path(__file__).parent / "data"


class TestKimiGguf(GgufConformance):
    plugin = colibri_kimi
    family = "kimi"
    models = {name: DATA / name / "model.gguf" for name in ("kimi_linear", "kimi_k3")}


@pytest.mark.parametrize(
    ("model", "metadata", "name"),
    [
        ("kimi_linear", {}, "kimi-linear"),
        ("kimi_k3", {}, "kimi-k3"),
    ],
)
def test_the_variant_is_read_from_the_file_alone(model: str, metadata: dict[str, Any], name: str) -> None:
    found = open_checkpoint(DATA / model / "model.gguf")
    variant = Kimi().variant_for(replace(found, metadata={**found.metadata, **metadata}))
    assert variant is not None
    assert variant.name == name
