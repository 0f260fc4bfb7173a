"""The contract of a family, on this one."""

from __future__ import annotations

from pathlib import Path

import colibri_qwen
from colibri.testing.conformance import FamilyConformance

DATA = Path(__file__).parent / "data" / "chat"


class TestQwen(FamilyConformance):
    plugin = colibri_qwen
    family = "qwen"
    prompts = {"qwen2.5": DATA / "prompts.json", "qwen2.5-coder": DATA / "prompts.json"}
    outputs = {"qwen2.5": DATA / "outputs.json", "qwen2.5-coder": DATA / "outputs-coder.json"}
