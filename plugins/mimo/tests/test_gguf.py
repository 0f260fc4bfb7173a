"""GGUF files as llama.cpp's converter writes them."""

from __future__ import annotations

from pathlib import Path

import colibri_mimo
from colibri.testing.gguf import GgufConformance

DATA = Path(__file__).parent / "data"


class TestMimoGguf(GgufConformance):
    plugin = colibri_mimo
    family = "mimo"
    models = {"mimo_v2_flash": DATA / "mimo_v2_flash" / "model.gguf"}
