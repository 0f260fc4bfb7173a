"""The contract of a family, on this one."""

from __future__ import annotations

from pathlib import Path

import colibri_olmoe
from colibri.testing.conformance import FamilyConformance

DATA = Path(__file__).parent / "data" / "chat"


class TestOlmoe(FamilyConformance):
    plugin = colibri_olmoe
    family = "olmoe"
    prompts = {"olmoe": DATA / "prompts.json"}
    outputs = {"olmoe": DATA / "outputs.json"}
