"""The contract of a family, on this one."""

from __future__ import annotations

from pathlib import Path

import colibri_inkling
from colibri.testing.conformance import FamilyConformance

DATA = Path(__file__).parent / "data" / "chat"
VARIANTS = ("inkling", "inkling-2-small", "inkling-2-mini")


class TestInkling(FamilyConformance):
    plugin = colibri_inkling
    family = "inkling"
    prompts = dict.fromkeys(VARIANTS, DATA / "prompts-inkling.json")
    outputs = dict.fromkeys(VARIANTS, DATA / "outputs-inkling.json")
