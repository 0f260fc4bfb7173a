"""Token ids, with the real tokenizer: run by `nox -s tokenizers`."""

from __future__ import annotations

from pathlib import Path

import colibri_inkling
from colibri.testing.tokens import TokensConformance

DATA = Path(__file__).parents[1] / "data" / "tokens"


class TestInkling(TokensConformance):
    plugin = colibri_inkling
    family = "inkling"
    tokens = {"inkling": DATA / "inkling.json"}
