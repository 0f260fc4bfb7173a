"""GGUF files as llama.cpp's converter writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import colibri_glm
from colibri.compute.checkpoint import open_checkpoint
from colibri.testing.gguf import GgufConformance
from colibri_glm import Glm

DATA = Path(__file__).parent / "data"


class TestGlmGguf(GgufConformance):
    plugin = colibri_glm
    family = "glm"
    models = {name: DATA / name / "model.gguf" for name in ("glm_moe_dsa", "glm5_next")}


@pytest.mark.parametrize(
    ("model", "metadata", "name"),
    [
        ("glm_moe_dsa", {}, "glm-5.2"),
        ("glm_moe_dsa", {"tokenizer.chat_template": "effort: Low, High"}, "glm-5.3"),
        ("glm5_next", {}, "glm-5.3-flash"),
    ],
)
def test_the_variant_is_read_from_the_file_alone(model: str, metadata: dict[str, Any], name: str) -> None:
    found = open_checkpoint(DATA / model / "model.gguf")
    variant = Glm().variant_for(replace(found, metadata={**found.metadata, **metadata}))
    assert variant is not None
    assert variant.name == name
