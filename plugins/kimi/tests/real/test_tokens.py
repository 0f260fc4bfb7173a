"""Token ids, with the real tokenizer: run by `nox -s tokenizers`."""

from __future__ import annotations

from pathlib import Path

import colibri_kimi
from colibri.testing.tokens import TokensConformance

DATA = Path(__file__).parents[1] / "data" / "tokens"


class TestKimi(TokensConformance):
    plugin = colibri_kimi
    family = "kimi"
    tokens = {"kimi-k3": DATA / "kimi-k3.json"}
    gguf = {"kimi-k3": ("kimi-k3", "kimi-k2")}
