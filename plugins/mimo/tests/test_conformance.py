"""The contract of a family, on this one."""

from __future__ import annotations

from pathlib import Path

import colibri_mimo
from colibri.testing.conformance import FamilyConformance

DATA = Path(__file__).parent / "data" / "chat"


class TestMimo(FamilyConformance):
    plugin = colibri_mimo
    family = "mimo"
    prompts = {"mimo-v2.6": DATA / "prompts-mimo-v2.6.json"}
    outputs = {"mimo-v2.6": DATA / "outputs-mimo-v2.6.json"}
    arguments = "schema"
