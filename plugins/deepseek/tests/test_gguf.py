"""GGUF files as llama.cpp's converter writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import colibri_deepseek
from colibri.compute.checkpoint import open_checkpoint
from colibri.testing.gguf import GgufConformance
from colibri_deepseek import DeepSeek
from colibri_deepseek.markup import DSML

DATA = Path(__file__).parent / "data"


class TestDeepSeekGguf(GgufConformance):
    plugin = colibri_deepseek
    family = "deepseek"
    models = {name: DATA / name / "model.gguf" for name in ("deepseek_v32", "deepseek_v4_hub")}


@pytest.mark.parametrize(
    ("model", "metadata", "name"),
    [
        ("deepseek_v4_hub", {}, "deepseek-v4"),
        ("deepseek_v32", {"tokenizer.ggml.tokens": ["a"]}, "deepseek-v3.2-exp"),
        ("deepseek_v32", {"tokenizer.ggml.tokens": ["a", DSML.token]}, "deepseek-v3.2"),
    ],
)
def test_the_variant_is_read_from_the_file_alone(model: str, metadata: dict[str, Any], name: str) -> None:
    found = open_checkpoint(DATA / model / "model.gguf")
    variant = DeepSeek().variant_for(replace(found, metadata={**found.metadata, **metadata}))
    assert variant is not None
    assert variant.name == name
