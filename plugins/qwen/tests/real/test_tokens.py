"""Token ids, with the real tokenizer: run by `nox -s tokenizers`."""

from __future__ import annotations

from pathlib import Path

import colibri_qwen
from colibri.testing.tokens import TokensConformance

DATA = Path(__file__).parents[1] / "data" / "tokens"


class TestQwen(TokensConformance):
    plugin = colibri_qwen
    family = "qwen"
    tokens = {"qwen3.6": DATA / "qwen3.6.json", "qwen3.8-flash-next": DATA / "qwen3.8-flash-next.json"}
    gguf = {"qwen3.6": ("qwen35moe", "qwen35"), "qwen3.8-flash-next": ("qwen4exp", "qwen35")}
