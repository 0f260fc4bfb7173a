"""A model as it lies on disk: its configuration and where each tensor is. Nothing here reads weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

#: Storage types of tensors. Block types hold whole blocks along the last dimension.
StorageType = Literal["f32", "bf16", "f16", "q8_0", "q4_0", "q5_0", "q4_k", "q6_k"]

#: Storage type -> (values per block, bytes per block).
BLOCKS: dict[str, tuple[int, int]] = {
    "f32": (1, 4),
    "bf16": (1, 2),
    "f16": (1, 2),
    "q8_0": (32, 34),
    "q4_0": (32, 18),
    "q5_0": (32, 22),
    "q4_k": (256, 144),
    "q6_k": (256, 210),
}


class Tensor(Struct, frozen=True):
    """Where a tensor lies. `shape` is row-major, outermost first; `dtype` is a StorageType or, for a type that
    cannot be computed with, the file's own word for it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    offset: int
    nbytes: int


class Checkpoint(Struct, frozen=True):
    """An opened model: a folder with config.json and safetensors shards, or a GGUF file.

    `config` is config.json as read, or {} for GGUF; `metadata` holds GGUF's key-value pairs, or {}. `tensors` uses the
    names the file uses; a family that reads several formats renames with `renamed`.
    """

    path: Path
    format: Literal["safetensors", "gguf"]
    config: dict[str, Any]
    metadata: Mapping[str, Any]
    tensors: Mapping[str, Tensor]

    @property
    def model_type(self) -> str | None:
        """config.json's `model_type`, or GGUF's `general.architecture`."""
        value = self.config.get("model_type") if self.format == "safetensors" else self.metadata.get("general.architecture")
        return value if isinstance(value, str) else None
