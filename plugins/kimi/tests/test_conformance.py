"""The contract of a family, on this one."""

from __future__ import annotations

from pathlib import Path

import colibri_kimi
from colibri.testing.conformance import FamilyConformance

DATA = Path(__file__).parent / "data" / "chat"


class TestKimi(FamilyConformance):
    plugin = colibri_kimi
    family = "kimi"
    prompts = {name: DATA / f"prompts-{name}.json" for name in ("kimi-k3", "kimi-linear")}
    outputs = {name: DATA / f"outputs-{name}.json" for name in ("kimi-k3", "kimi-linear")}
