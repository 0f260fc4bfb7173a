"""Converted models: safetensors files whose matrices lie as the kernels read them, experts in records.

Such a file is valid safetensors. Its packed tensors are bytes (U8), and the header's `__metadata__` says what they are:

    colibri.container  "1"
    colibri.matrices   JSON: {name: {"dtype": a type of TOGETHER, "shape": [rows, columns]}}
    colibri.banks      JSON: {name: {"gate" | "up" | "down": {"dtype", "shape", "offset": in a record}}}

A bank is a tensor [experts, bytes of a record]. Records begin at multiples of ALIGNMENT in their file and are as long, so
that an expert is one read, past the system's cache if need be. All else is as published; a model that was a GGUF file keeps
its metadata in METADATA, a GGUF file without tensors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from ..errors import CheckpointError
from .checkpoint import BLOCKS, TOGETHER, StoredBank, Tensor

VERSION = "1"
ALIGNMENT = 4096

#: The file that holds the metadata of what was a GGUF file.
METADATA = "metadata.gguf"

#: Keys of the header's metadata.
KIND, MATRICES, BANKS = "colibri.container", "colibri.matrices", "colibri.banks"

_SIZE = 1 << 31


class Matrix(Struct, frozen=True, forbid_unknown_fields=True):
    """A packed matrix, or a tensor of a type that safetensors has no word for; `offset` is where it begins in a record."""

    dtype: str
    shape: tuple[int, ...]
    offset: int = 0

    @property
    def nbytes(self) -> int:
        """Its room: of whole groups of interleaved rows."""
        (block, size), together = BLOCKS[self.dtype], TOGETHER.get(self.dtype, 1)
        rows = math.prod(self.shape[:-1])
        return -(-rows // together) * together * (self.shape[-1] // block) * size


class Parts(Struct, frozen=True, forbid_unknown_fields=True):
    """What a record holds."""

    gate: Matrix
    up: Matrix
    down: Matrix


def unpacked(tensors: Mapping[str, Tensor], metadata: Any, file: Path) -> tuple[dict[str, Tensor], dict[str, StoredBank]]:
    """The tensors of one file as its metadata say they are, and its banks. Raises CheckpointError."""
    if not isinstance(metadata, dict) or KIND not in metadata:
        return dict(tensors), {}
    if metadata[KIND] != VERSION:
        reason = (
            f"is a converted model of format {str(metadata[KIND])[:16]!r}, this version reads {VERSION!r}: convert it again"
        )
        raise CheckpointError(reason, file=file)
    found = dict(tensors)
    for name, matrix in _described(metadata, MATRICES, dict[str, Matrix], file).items():
        stored = _stored(tensors, name, file)
        if len(stored.shape) != 1 or stored.nbytes != _checked(matrix, stored).nbytes:
            raise stored.error(f"takes {stored.nbytes} bytes, {matrix.dtype} {list(matrix.shape)} has {matrix.nbytes}")
        found[name] = Tensor(name, matrix.dtype, matrix.shape, file, stored.offset, stored.nbytes)
    banks = {
        name: _bank(_stored(tensors, name, file), parts)
        for name, parts in _described(metadata, BANKS, dict[str, Parts], file).items()
    }
    return found, banks


def _described(metadata: Mapping[str, Any], key: str, type: type, file: Path) -> Any:
    try:
        return msgspec.json.decode(metadata.get(key, "{}"), type=type)
    except (msgspec.MsgspecError, TypeError, RecursionError) as error:
        raise CheckpointError(f"metadata {key} is malformed: {error}", file=file) from None


def _stored(tensors: Mapping[str, Tensor], name: str, file: Path) -> Tensor:
    stored = tensors.get(name)
    if stored is None or stored.dtype != "U8":
        raise CheckpointError("is described in the metadata, but there are no such bytes", file=file, tensor=name[:256])
    return stored


def _checked(matrix: Matrix, stored: Tensor) -> Matrix:
    shape, dtype = matrix.shape, matrix.dtype
    possible = dtype in BLOCKS and 1 <= len(shape) <= 3 and all(0 < size < _SIZE for size in shape)
    if not possible or shape[-1] % BLOCKS[dtype][0] or (dtype in TOGETHER and len(shape) != 2):
        raise stored.error(f"can't be {dtype[:32]} of shape {[*shape[:8]]}")
    return matrix


def _bank(stored: Tensor, parts: Parts) -> StoredBank:
    if len(stored.shape) != 2 or stored.shape[1] % ALIGNMENT or stored.offset % ALIGNMENT:
        raise stored.error(f"a bank [experts, bytes] lies at multiples of {ALIGNMENT} bytes")
    experts, record = stored.shape
    for part in (parts.gate, parts.up, parts.down):
        if len(_checked(part, stored).shape) != 2:
            raise stored.error("holds matrices, nothing else")
    inner, width = parts.gate.shape
    if parts.up.shape != (inner, width) or parts.down.shape != (width, inner):
        raise stored.error("its gate, up and down do not go together")

    def of(part: Matrix, name: str) -> tuple[Tensor, ...]:
        if not 0 <= part.offset <= record - part.nbytes:
            raise stored.error(f"its {name} leaves the record of {record} bytes")
        return tuple(
            Tensor(
                f"{stored.name}.{e}.{name}",
                part.dtype,
                part.shape,
                stored.file,
                stored.offset + e * record + part.offset,
                part.nbytes,
            )
            for e in range(experts)
        )

    return StoredBank(of(parts.gate, "gate"), of(parts.up, "up"), of(parts.down, "down"))


def record_of(gate: Matrix, up: Matrix, down: Matrix) -> tuple[Parts, int]:
    """How three matrices lie in a record, and its length."""
    placed, at = [], 0
    for matrix in (gate, up, down):
        placed.append(Matrix(matrix.dtype, matrix.shape, at))
        at += -(-matrix.nbytes // 64) * 64
    return Parts(*placed), math.ceil(at / ALIGNMENT) * ALIGNMENT
