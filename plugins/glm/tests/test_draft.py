"""Draft heads against transformers, which ran small ones with random weights behind the models of tests/data."""

from __future__ import annotations

from pathlib import Path

import colibri_glm
from colibri.testing.drafts import DraftConformance

DATA = Path(__file__).parent / "data"


class TestGlmDrafts(DraftConformance):
    plugin = colibri_glm
    family = "glm"
    models = {name: DATA / name for name in ("glm_moe_dsa", "glm5_next")}
