"""The contract of a family, on this one."""

from __future__ import annotations

from pathlib import Path

import colibri_kimi
from colibri.testing.conformance import FamilyConformance

DATA = Path(__file__).parent / "data" / "chat"


class TestKimi(FamilyConformance):
    plugin = colibri_kimi
    family = "kimi"
    prompts = {"kimi-k3": DATA / "prompts-kimi-k3.json"}
    outputs = {"kimi-k3": DATA / "outputs-kimi-k3.json"}
