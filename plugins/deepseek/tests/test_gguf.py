"""GGUF files as llama.cpp's converter writes them."""

from __future__ import annotations

from pathlib import Path

import colibri_deepseek
from colibri.testing.gguf import GgufConformance

DATA = Path(__file__).parent / "data"


class TestDeepSeekGguf(GgufConformance):
    plugin = colibri_deepseek
    family = "deepseek"
    models = {name: DATA / name / "model.gguf" for name in ("deepseek_v32", "deepseek_v4_hub")}
