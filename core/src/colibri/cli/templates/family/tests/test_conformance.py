"""The contract of a family, on this one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from colibri.testing.conformance import FamilyConformance

import colibri_heron

DATA = Path(__file__).parent / "data"


class TestHeron(FamilyConformance):
    plugin: ClassVar[Any] = colibri_heron
    family = "heron"
    prompts = {"heron": DATA / "prompts.json"}
    outputs = {"heron": DATA / "outputs.json"}
