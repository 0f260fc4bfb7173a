"""Token ids, with the real tokenizer: run by `nox -s tokenizers`."""

from __future__ import annotations

from pathlib import Path

import colibri_mimo
from colibri.testing.tokens import TokensConformance

DATA = Path(__file__).parents[1] / "data" / "tokens"


class TestMimo(TokensConformance):
    plugin = colibri_mimo
    family = "mimo"
    tokens = {"mimo-v2.6": DATA / "mimo-v2.6.json"}
    gguf = {"mimo-v2.6": ("mimo2", "qwen2")}
