"""GGUF files of the models with delta networks, as llama.cpp's converter writes them."""

from __future__ import annotations

from pathlib import Path

import colibri_qwen
from colibri.testing.gguf import GgufConformance

DATA = Path(__file__).parent / "data"


class TestQwenGguf(GgufConformance):
    plugin = colibri_qwen
    family = "qwen"
    models = {name: DATA / name / "model.gguf" for name in ("qwen3_next", "qwen3_5", "qwen3_5_moe", "qwen4_exp")}
