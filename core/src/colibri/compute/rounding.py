"""Numbers in fewer bytes, for what may lose some precision on disk."""

from __future__ import annotations

from typing import Literal

#: As they are; in 16 bits; in blocks of 32 with 8 bits each and a scale of 16.
Rounding = Literal["f32", "f16", "q8"]

#: Storage type, values of a block, and its bytes.
_TYPES: dict[Rounding, tuple[str, int, int]] = {"f32": ("f32", 1, 4), "f16": ("f16", 1, 2), "q8": ("q8_0", 32, 34)}


def rounded_bytes(rounding: Rounding, count: int) -> int:
    """Bytes that `count` numbers take."""
    _, block, size = _TYPES[rounding]
    return -(-count // block) * size


def rounded(rounding: Rounding, data: bytes) -> bytes:
    """float32 bytes in fewer bytes; the last block is filled up with zeros."""
    if rounding == "f32":
        return data
    from .. import _native

    return _native.rounded(_TYPES[rounding][0], data)


def restored(rounding: Rounding, data: bytes, count: int) -> bytes:
    """The first `count` float32 numbers of what `rounded` made."""
    if rounding == "f32":
        return data
    from .. import _native

    dtype, block, _ = _TYPES[rounding]
    return _native.dequantize(dtype, data, -(-count // block) * block)[: 4 * count]
