"""Token ids, with the real tokenizer: run by `nox -s tokenizers`."""

from __future__ import annotations

from pathlib import Path

import colibri_olmoe
from colibri.testing.tokens import TokensConformance

DATA = Path(__file__).parents[1] / "data" / "tokens"


class TestOlmoe(TokensConformance):
    plugin = colibri_olmoe
    family = "olmoe"
    tokens = {"olmoe": DATA / "olmoe.json"}
    gguf = {"olmoe": ("olmoe", "olmo")}
