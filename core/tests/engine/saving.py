"""Slots with something in them, and files of them, for the tests of KV files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from colibri.compute.rounding import Rounding
from colibri.compute.runtime import Row, Runtime
from colibri.engine.kv_files import encode
from colibri.testing.runtime import ScriptedRuntime


def filled(tokens: Sequence[int], runtime: ScriptedRuntime | None = None, *, slot: int = 0) -> ScriptedRuntime:
    """A runtime whose slot holds these tokens, remembered after every fourth."""
    runtime = runtime or ScriptedRuntime(identity="a model", sequential=True, max_rows=4)
    for start in range(0, len(tokens), 4):
        runtime.step([Row(token, slot, start + i) for i, token in enumerate(tokens[start : start + 4])])
        runtime.remember(slot)
    return runtime


def saved(runtime: Runtime, tokens: Sequence[int], *, slot: int = 0, rounding: Rounding = "f32") -> bytes:
    """The file of a slot."""
    return b"".join(encode(tokens, [(runtime.identity, runtime.image(slot, len(tokens)))], rounding))


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path
