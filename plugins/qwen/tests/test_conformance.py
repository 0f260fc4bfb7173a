"""The contract of a family, on this one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import colibri_qwen
from colibri.testing.conformance import FamilyConformance
from colibri_qwen import Qwen
from colibri_qwen.variants import QWEN2, QWEN2_5, QWEN2_5_CODER, QWEN3_NEXT

DATA = Path(__file__).parent / "data" / "chat"


class TestQwen(FamilyConformance):
    plugin = colibri_qwen
    family = "qwen"
    prompts = {
        "qwen2.5": DATA / "prompts.json",
        "qwen2.5-coder": DATA / "prompts.json",
        "qwen3-next": DATA / "prompts-qwen3-next.json",
        "qwen3.6": DATA / "prompts-qwen3.6.json",
        "qwen3.8": DATA / "prompts-qwen3.8-flash-next.json",
        "qwen3.8-flash-next": DATA / "prompts-qwen3.8-flash-next.json",
    }
    outputs = {
        "qwen2.5": DATA / "outputs.json",
        "qwen2.5-coder": DATA / "outputs-coder.json",
        "qwen3-next": DATA / "outputs.json",
        "qwen3.6": DATA / "outputs-qwen3.6.json",
        "qwen3.8": DATA / "outputs-qwen3.8-flash-next.json",
        "qwen3.8-flash-next": DATA / "outputs-qwen3.8-flash-next.json",
    }
    arguments = "schema"


class Instruct(Qwen):
    """The variants whose calls are JSON: their arguments may be anything."""

    def variants(self) -> Any:
        return (QWEN2, QWEN2_5, QWEN2_5_CODER, QWEN3_NEXT)


class TestInstruct(FamilyConformance):
    plugin = SimpleNamespace(register_families=lambda register: register(Instruct()))
    family = "qwen"
