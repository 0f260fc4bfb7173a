"""Token ids, with the real tokenizer: run by `nox -s tokenizers`."""

from __future__ import annotations

from pathlib import Path

import colibri_deepseek
from colibri.testing.tokens import TokensConformance

DATA = Path(__file__).parents[1] / "data" / "tokens"


class TestDeepSeek(TokensConformance):
    plugin = colibri_deepseek
    family = "deepseek"
    tokens = {"deepseek-v4": DATA / "deepseek-v4.json"}
    gguf = {"deepseek-v4": ("deepseek4", "joyai-llm")}
