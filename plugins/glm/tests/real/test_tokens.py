"""Token ids, with the real tokenizer: run by `nox -s tokenizers`."""

from __future__ import annotations

from pathlib import Path

import colibri_glm
from colibri.testing.tokens import TokensConformance

DATA = Path(__file__).parents[1] / "data" / "tokens"


class TestGlm(TokensConformance):
    plugin = colibri_glm
    family = "glm"
    tokens = {"glm-5.2": DATA / "glm-5.2.json", "glm-5.3-flash": DATA / "glm-5.3-flash.json"}
    gguf = {"glm-5.2": ("glm-dsa", "glm4"), "glm-5.3-flash": ("glm5-next", "glm4")}
