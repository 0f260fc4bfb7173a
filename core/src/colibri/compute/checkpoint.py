"""A model as it lies on disk: its configuration and where each tensor is. Nothing here reads weights, only small tables."""

from __future__ import annotations

import math
import re
import stat
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from ..errors import CheckpointError

#: Storage type -> (values per block, bytes per block). Block types hold whole blocks along the last dimension. `e8m0` is the
#: power of two 2^(byte - 127), `u4` and `u8` are unsigned codes that scales give a meaning, `i32` and `i64` are for tables.
BLOCKS: dict[str, tuple[int, int]] = {
    "f32": (1, 4),
    "bf16": (1, 2),
    "f16": (1, 2),
    "i32": (1, 4),
    "i64": (1, 8),
    "e4m3": (1, 1),
    "e8m0": (1, 1),
    "e2m1": (2, 1),
    "i8": (1, 1),
    "u8": (1, 1),
    "u4": (2, 1),
    "q8_0": (32, 34),
    "q4_0": (32, 18),
    "q4_1": (32, 20),
    "q5_0": (32, 22),
    "q5_1": (32, 24),
    "q2_k": (256, 84),
    "q3_k": (256, 110),
    "q4_k": (256, 144),
    "q5_k": (256, 176),
    "q6_k": (256, 210),
    "iq4_nl": (32, 18),
    "iq4_xs": (256, 136),
    "mxfp4": (32, 17),
    "nvfp4": (64, 36),
    "i4x16": (64, 34),
    "i8x16": (64, 66),
}

#: Storage types of matrices whose rows lie interleaved -> how many: a matrix takes the room of a multiple of that.
TOGETHER = {"i4x16": 16, "i8x16": 16}

#: Unsigned codes -> for how many rows of a grid of scales their zeros lie together in 32 bits.
ZEROS = {"u4": 8, "u8": 4}

#: Type of a table's numbers, as `Tensor.dtype` spells it -> struct letter; bf16 is the upper half of an f32.
_NUMBERS = {
    "f32": "f", "f16": "e", "bf16": "H", "F64": "d", "f64": "d", "BOOL": "?", "I8": "b", "U8": "B", "I16": "h", "U16": "H",
    "I32": "i", "U32": "I", "U64": "Q", "i8": "b", "i16": "h", "i32": "i", "i64": "q",
}  # fmt: skip


class Scales(Struct, frozen=True):
    """The scales of a quantised matrix that lie in a tensor of their own.

    Row r of the matrix is row `first + r * every` of what the grid was made for, whose value (row, column) is multiplied by
    `grid[row // block[0], column // block[1]] * factor`. From unsigned codes `zero` is subtracted first, or
    `zeros[i // n, j * n + i % n]` for the grid's row i and column j, where n is ZEROS[dtype].
    A tensor of several matrices has a grid, or one grid for all, and a factor for each (`factors`, or `factor` for all).
    """

    grid: Tensor
    block: tuple[int, int]
    first: int = 0
    every: int = 1
    factor: float = 1.0
    zeros: Tensor | None = None
    zero: int = 0
    factors: tuple[float, ...] = ()

    def part(self, index: int) -> Scales:
        """The scales of the `index`-th matrix."""
        grid = self.grid.part(index if self.grid.shape[0] > 1 else 0)
        zeros = None if self.zeros is None else self.zeros.part(index)
        factor = self.factors[index] if self.factors else self.factor
        return replace(self, grid=grid, zeros=zeros, factor=factor, factors=())


class Tensor(Struct, frozen=True):
    """Where a tensor lies. `shape` is row-major, outermost first; `dtype` is a storage type (a key of BLOCKS) or, for a type
    that cannot be computed with, the file's own word for it. `nbytes` spans all of it; rows of a matrix begin `pitch` bytes
    apart, 0 if they lie one behind the other."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    offset: int
    nbytes: int
    pitch: int = 0
    scales: Scales | None = None

    def part(self, index: int) -> Tensor:
        """The `index`-th slice of the outermost dimension, as a tensor of its own."""
        alone = not self.pitch and self.scales is None and self.dtype not in TOGETHER
        plain = len(self.shape) > 2 or alone
        if len(self.shape) < 2 or not 0 <= index < self.shape[0] or not plain:
            raise self.error(f"has shape {list(self.shape)}, there is no part {index}")
        size = self.nbytes // self.shape[0]
        scales = None if self.scales is None else self.scales.part(index)
        offset = self.offset + index * size
        name = f"{self.name}[{index}]"
        return Tensor(name, self.dtype, self.shape[1:], self.file, offset, size, self.pitch, scales)

    def rows(self, start: int, stop: int, every: int = 1) -> Tensor:
        """Rows `start`, `start + every`, … below `stop` of a matrix, as a matrix of its own."""
        if len(self.shape) != 2 or every < 1 or not 0 <= start < stop <= self.shape[0]:
            raise self.error(f"has shape {list(self.shape)}, there are no rows {start} to {stop}")
        count = (stop - start + every - 1) // every
        together = TOGETHER.get(self.dtype, 1)
        if together > 1 and (start % together or every > 1):
            raise self.error(f"has {together} rows interleaved, no rows {start}:{stop}:{every} can be taken out")
        row = self.row_bytes
        pitch = self.pitch or row
        scales = self.scales
        if scales is not None:
            scales = replace(scales, first=scales.first + start * scales.every, every=scales.every * every)
        name = f"{self.name}[{start}:{stop}{f':{every}' if every > 1 else ''}]"
        stored = -(-count // together) * together
        offset, size = self.offset + start * pitch, (stored - 1) * pitch * every + row
        dense = pitch * every == row
        return Tensor(
            name, self.dtype, (count, self.shape[1]), self.file, offset, size, 0 if dense else pitch * every, scales
        )

    def reshaped(self, *shape: int) -> Tensor:
        """The same values in another shape."""
        if math.prod(shape) != self.values or self.pitch or self.scales is not None:
            raise self.error(f"has shape {list(self.shape)}, {list(shape)} is needed")
        return self if shape == self.shape else replace(self, name=f"{self.name}{list(shape)}", shape=shape)

    @property
    def values(self) -> int:
        """How many values it holds."""
        return math.prod(self.shape)

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of a matrix, or of a vector."""
        block, size = BLOCKS[self.dtype]
        return self.shape[-1] // block * size

    def numbers(self, most: int = 1 << 16) -> list[float] | list[int]:
        """What a small table holds, row by row. Raises CheckpointError if it is larger than `most` numbers, or if one of
        them is infinite or not a number."""
        letter, count = _NUMBERS.get(self.dtype), math.prod(self.shape)
        if letter is None or self.pitch or self.scales is not None:
            raise self.error(f"is stored as {self.dtype[:32]}, plain numbers are needed")
        if count > most:
            raise self.error(f"holds {count} numbers, at most {most} are expected")
        try:
            with self.file.open("rb") as stream:
                stream.seek(self.offset)
                data = stream.read(self.nbytes)
        except OSError as error:
            raise self.error(f"cannot be read: {error.strerror}") from None
        if len(data) != count * struct.calcsize(f"<{letter}"):
            raise self.error("was cut short while it was read")
        values = struct.unpack(f"<{count}{letter}", data)
        if self.dtype == "bf16":
            values = struct.unpack(f"<{count}f", b"".join(struct.pack("<I", value << 16) for value in values))
        if not all(map(math.isfinite, values)):
            raise self.error("holds a value that is infinite or not a number")
        return list(values)

    def error(self, reason: str) -> CheckpointError:
        """An error about this tensor."""
        return CheckpointError(reason, file=self.file, tensor=self.name)


def parts_of(tensor: Tensor) -> list[Tensor]:
    """Everything that must be read to compute with a tensor: itself, and its scales."""
    scales = tensor.scales
    return [tensor] if scales is None else [tensor, scales.grid, *([] if scales.zeros is None else [scales.zeros])]


class StoredBank(Struct, frozen=True):
    """The experts of a layer that lie in records of one size, one record an expert: gate, up and down of each."""

    gate: tuple[Tensor, ...]
    up: tuple[Tensor, ...]
    down: tuple[Tensor, ...]


class Checkpoint(Struct, frozen=True):
    """An opened model: a folder with config.json and safetensors shards, or a GGUF file.

    `config` is config.json as read, or {} for GGUF; `metadata` holds GGUF's key-value pairs, or {}. `tensors` uses the
    names the file uses; a family that reads several formats tells the graph where its weights are (`Graph.find`).
    `banks` holds by their names in plans the experts that a converted model has in records (see container.py).
    """

    path: Path
    format: Literal["safetensors", "gguf"]
    config: dict[str, Any]
    metadata: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    banks: Mapping[str, StoredBank] = {}

    @property
    def model_type(self) -> str | None:
        """config.json's `model_type`, or GGUF's `general.architecture`."""
        value = self.config.get("model_type") if self.format == "safetensors" else self.metadata.get("general.architecture")
        return value if isinstance(value, str) else None

    def beside(self, *names: str) -> Path:
        """The first of these files that lies in a model's folder; a GGUF file has all of it within itself. Raises
        CheckpointError if there is none."""
        if self.format == "gguf":
            return self.path
        for name in names:
            if (file := self.path / name).is_file():
                return file
        missing = f"no {names[0]}" if len(names) == 1 else f"neither a {' nor a '.join(names)}"
        raise CheckpointError(f"the model has {missing}", file=self.path)

    def tensor(self, name: str) -> Tensor:
        """The tensor called `name` in the file. Raises CheckpointError if there is none."""
        try:
            return self.tensors[name]
        except KeyError:
            raise CheckpointError("is missing", file=self.path, tensor=name) from None

    def has(self, prefix: str) -> bool:
        """Whether any tensor's name begins so."""
        return any(name.startswith(prefix) for name in self.tensors)

    def numbers(self, name: str, most: int = 1 << 16) -> list[float] | list[int]:
        """What the small table called `name` holds (see Tensor.numbers)."""
        return self.tensor(name).numbers(most)


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
