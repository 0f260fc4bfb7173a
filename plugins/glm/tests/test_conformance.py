"""The contract of a family, on this one."""

from __future__ import annotations

from pathlib import Path

import colibri_glm
from colibri.testing.conformance import FamilyConformance

DATA = Path(__file__).parent / "data" / "chat"
NAMES = ("glm-5.2", "glm-5.3", "glm-5.3-flash")


class TestGlm(FamilyConformance):
    plugin = colibri_glm
    family = "glm"
    prompts = {name: DATA / f"prompts-{name}.json" for name in NAMES}
    outputs = {"glm-5.2": DATA / "outputs-glm-5.2.json"} | dict.fromkeys(NAMES[1:], DATA / "outputs-glm-5.3-flash.json")
    arguments = "schema"
