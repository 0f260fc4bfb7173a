"""GGUF files as llama.cpp's converter writes them."""

from __future__ import annotations

from pathlib import Path

import colibri_kimi
from colibri.testing.gguf import GgufConformance

DATA = Path(__file__).parent / "data"


class TestKimiGguf(GgufConformance):
    plugin = colibri_kimi
    family = "kimi"
    models = {name: DATA / name / "model.gguf" for name in ("kimi_linear", "kimi_k3")}
