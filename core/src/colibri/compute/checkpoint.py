"""A model as it lies on disk: its configuration and where each tensor is. Nothing here reads weights."""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from ..errors import CheckpointError

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

    def part(self, index: int) -> Tensor:
        """The `index`-th slice of the outermost dimension, as a tensor of its own."""
        if len(self.shape) < 2 or not 0 <= index < self.shape[0]:
            reason = f"has shape {list(self.shape)}, there is no part {index}"
            raise CheckpointError(reason, file=self.file, tensor=self.name)
        size = self.nbytes // self.shape[0]
        return Tensor(f"{self.name}[{index}]", self.dtype, self.shape[1:], self.file, self.offset + index * size, size)


class Checkpoint(Struct, frozen=True):
    """An opened model: a folder with config.json and safetensors shards, or a GGUF file.

    `config` is config.json as read, or {} for GGUF; `metadata` holds GGUF's key-value pairs, or {}. `tensors` uses the
    names the file uses; a family that reads several formats tells the graph where its weights are (`Graph.find`).
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

    def tensor(self, name: str) -> Tensor:
        """The tensor called `name` in the file. Raises CheckpointError if there is none."""
        try:
            return self.tensors[name]
        except KeyError:
            raise CheckpointError("is missing", file=self.path, tensor=name) from None


_SHARD = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<suffix>\.\w+)", re.DOTALL)


def open_checkpoint(path: str | Path) -> Checkpoint:
    """Open a folder (config.json and safetensors, or one GGUF model) or a GGUF file, reading headers only.

    Raises CheckpointError, one line, for whatever is wrong with the files.
    """
    from . import gguf, safetensors  # they build on this module

    path = Path(path)
    try:
        if path.is_dir():
            names = sorted(entry.name for entry in path.iterdir())
            if any(name.endswith((".safetensors", ".safetensors.index.json")) for name in names):
                return safetensors.open_folder(path)
            models = [name for name in names if name.endswith(".gguf") and not is_later_shard(name)]
            if len(models) == 1:
                return gguf.open_file(path / models[0])
            if models:
                raise CheckpointError(f"holds several GGUF models, name one of them: {', '.join(models[:5])}", file=path)
            raise CheckpointError("holds neither safetensors nor a GGUF file", file=path)
        if path.suffix == ".safetensors":
            raise CheckpointError("is one weights file; give the folder that holds it and config.json", file=path)
        return gguf.open_file(path)
    except (OSError, ValueError) as error:  # ValueError: a NUL character in the path
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise CheckpointError(f"cannot be read: {reason}", file=path) from None


def file_size(path: Path) -> int:
    """Size in bytes of a regular file; anything else (a pipe would block for ever) is a CheckpointError."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        raise CheckpointError("does not exist or cannot be read", file=path) from None
    if not stat.S_ISREG(status.st_mode):
        raise CheckpointError("is not a regular file", file=path)
    return status.st_size


def shards(path: Path) -> list[Path]:
    """All files of the set that `path` (…-00002-of-00005.…) belongs to, in order; [path] if it is no shard."""
    match = _SHARD.fullmatch(path.name)
    if match is None:
        return [path]
    count = int(match["count"])
    if not 1 <= int(match["number"]) <= count:
        raise CheckpointError("its name counts shards wrongly", file=path)
    return [path.with_name(f"{match['stem']}-{i:05d}-of-{count:05d}{match['suffix']}") for i in range(1, count + 1)]


def is_later_shard(name: str) -> bool:
    """Whether a file name is that of a shard, and not of the first."""
    match = _SHARD.fullmatch(name)
    return match is not None and int(match["number"]) != 1


def check_layout(tensors: list[Tensor]) -> None:
    """No two tensors of one file may share bytes. Raises CheckpointError naming the second one."""
    end, last = 0, ""
    for tensor in sorted(tensors, key=lambda t: (t.offset, t.nbytes)):
        if tensor.offset < end and tensor.nbytes:
            raise CheckpointError(f"overlaps tensor {last!r}", file=tensor.file, tensor=tensor.name)
        if tensor.nbytes:
            end, last = tensor.offset + tensor.nbytes, tensor.name
