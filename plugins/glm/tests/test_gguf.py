"""GGUF files as llama.cpp's converter writes them."""

from __future__ import annotations

from pathlib import Path

import colibri_glm
from colibri.testing.gguf import GgufConformance

DATA = Path(__file__).parent / "data"


class TestGlmGguf(GgufConformance):
    plugin = colibri_glm
    family = "glm"
    models = {name: DATA / name / "model.gguf" for name in ("glm_moe_dsa", "glm5_next")}
