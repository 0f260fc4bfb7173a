"""The contract of a family, on this one."""

from __future__ import annotations

from pathlib import Path

import colibri_deepseek
from colibri.testing.conformance import FamilyConformance

DATA = Path(__file__).parent / "data" / "chat"


class TestDeepSeek(FamilyConformance):
    plugin = colibri_deepseek
    family = "deepseek"
    prompts = {name: DATA / f"prompts-{name}.json" for name in ("deepseek-v4", "deepseek-v3.2")}
    outputs = {name: DATA / f"outputs-{name}.json" for name in ("deepseek-v4", "deepseek-v3.2")}
