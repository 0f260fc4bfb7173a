"""The storage types of weights, in plain numpy: the second opinion on the native ones, and what writes small models.

All numbers are little-endian; a block's values lie along the last dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..compute.checkpoint import BLOCKS, TOGETHER, ZEROS, Tensor
from .blocks import DECODERS, ENCODERS
from .floats import E2M1, E4M3, nearest, powers

# Arrays of float64 and of uint8 (see blocks.py).
Floats = Any
Bytes = Any


def values_of(tensor: Tensor) -> NDArray[np.float64]:
    """The values of a tensor, read from its file: whatever its storage type, scales and pitch are."""
    if tensor.scales is not None and len(tensor.shape) > 2:
        return np.stack([values_of(tensor.part(index)) for index in range(tensor.shape[0])])
    with tensor.file.open("rb") as stream:
        stream.seek(tensor.offset)
        data = stream.read(tensor.nbytes)
    if tensor.pitch:
        rows = -(-len(data) // tensor.pitch)
        lines = np.frombuffer(data.ljust(rows * tensor.pitch, b"\0"), np.uint8).reshape(rows, tensor.pitch)
        data = lines[:, : tensor.row_bytes].tobytes()
    values = dequantise(tensor.dtype, data, tensor.shape)
    scales = tensor.scales
    if scales is None:
        return values
    rows, cols = values.shape
    i = ((scales.first + np.arange(rows) * scales.every) // scales.block[0])[:, None]
    j = (np.arange(cols) // scales.block[1])[None, :]
    zeros: Floats = scales.zero
    if scales.zeros is not None:
        lines_together = ZEROS[tensor.dtype]
        zeros = values_of(scales.zeros)[i // lines_together, j * lines_together + i % lines_together]
    scaled: NDArray[np.float64] = (values - zeros) * values_of(scales.grid)[i, j] * scales.factor
    return scaled


def dequantise(dtype: str, data: bytes, shape: Sequence[int]) -> NDArray[np.float64]:
    """The values of a tensor from its bytes."""
    raw = np.frombuffer(data, np.uint8)
    if dtype in TOGETHER:
        return _separate(dtype, raw, *shape)
    if dtype in DECODERS:
        values = DECODERS[dtype](raw.reshape(-1, BLOCKS[dtype][1]))
    else:
        values = _READERS[dtype](raw)
    found: NDArray[np.float64] = values.astype(np.float64).reshape(tuple(shape))
    return found


def quantise(dtype: str, values: NDArray[np.floating]) -> bytes:
    """A tensor's bytes from its values, each value or block rounded in the most direct way."""
    block = BLOCKS[dtype][0]
    if dtype in TOGETHER:
        return _interleaved(dtype, values)
    if values.shape[-1] % block:
        raise ValueError(f"rows of {values.shape[-1]} values are no whole blocks of {block} ({dtype})")
    if dtype in ENCODERS:
        return bytes(ENCODERS[dtype](values.astype(np.float64).reshape(-1, block)).tobytes())
    return bytes(_WRITERS[dtype](values).tobytes())


def _separate(dtype: str, raw: Bytes, rows: int, columns: int) -> NDArray[np.float64]:
    """Matrices whose rows lie interleaved: 16 scales for each group of 64 columns, then the groups' codes in lines of four
    bytes for each row."""
    together, groups = TOGETHER[dtype], columns // 64
    blocks = raw.reshape(-1, together * columns // 64 * BLOCKS[dtype][1])
    scales = blocks[:, : groups * together * 2].copy().view("<f2").reshape(-1, groups, together).astype(np.float64)
    lines = blocks[:, groups * together * 2 :].reshape(len(blocks), groups, -1, together, 4)
    if dtype == "i4x16":
        halves = np.stack([lines & 15, lines >> 4], axis=3).astype(np.int16) - 8  # [block, group, line, half, row, 4]
        codes = np.moveaxis(halves, 4, 1)
    else:
        codes = np.moveaxis(lines.view(np.int8), 3, 1)
    values = codes.reshape(len(blocks), together, groups, 64) * scales.swapaxes(1, 2)[..., None]
    found: NDArray[np.float64] = values.reshape(-1, columns)[:rows]
    return found


def _interleaved(dtype: str, values: Floats) -> bytes:
    """The same the other way round; rows that fill the last block up are zeros."""
    (rows, columns), together = values.shape, TOGETHER[dtype]
    filled = np.zeros((-(-rows // together) * together, columns))
    filled[:rows] = values
    grouped = filled.reshape(-1, together, columns // 64, 64)
    least, most = (-8, 7) if dtype == "i4x16" else (-127, 127)
    scales = (np.abs(grouped).max(-1) / most).astype("<f2")
    with np.errstate(divide="ignore", invalid="ignore"):
        codes = np.nan_to_num(np.rint(grouped / scales[..., None].astype(np.float64))).clip(least, most).astype(np.int8)
    codes = codes.swapaxes(1, 2)  # [block, group, row, 64]
    if dtype == "i4x16":
        halves = (codes + 8).astype(np.uint8).reshape(*codes.shape[:3], 8, 2, 4)
        lines = np.moveaxis(halves[..., 0, :] | halves[..., 1, :] << 4, 2, 3)
    else:
        lines = np.moveaxis(codes.view(np.uint8).reshape(*codes.shape[:3], 16, 4), 2, 3)
    parts = zip(scales.swapaxes(1, 2), lines, strict=True)
    return b"".join(np.ascontiguousarray(s).tobytes() + np.ascontiguousarray(c).tobytes() for s, c in parts)


def _read_bf16(raw: Bytes) -> Floats:
    return (raw.view("<u2").astype("<u4") << 16).view("<f4")


def _write_bf16(values: Floats) -> Bytes:
    bits = values.astype("<f4").view("<u4").astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def _read_nibbles(raw: Bytes) -> Bytes:
    """The low half of a byte, then the high one."""
    return np.stack([raw & 15, raw >> 4], axis=-1)


def _write_nibbles(codes: Bytes) -> Bytes:
    return codes[..., 0::2] | codes[..., 1::2] << 4


def _integers(dtype: str) -> Callable[[Floats], Bytes]:
    limits = np.iinfo(dtype)
    return lambda values: np.clip(np.rint(values), limits.min, limits.max).astype(dtype)


_READERS: dict[str, Callable[[Bytes], Floats]] = {
    "f32": lambda raw: raw.view("<f4"),
    "f16": lambda raw: raw.view("<f2"),
    "bf16": _read_bf16,
    "i32": lambda raw: raw.view("<i4"),
    "i64": lambda raw: raw.view("<i8"),
    "i8": lambda raw: raw.view(np.int8),
    "u8": lambda raw: raw,
    "u4": _read_nibbles,
    "e4m3": lambda raw: E4M3[raw],
    "e8m0": powers,
    "e2m1": lambda raw: E2M1[_read_nibbles(raw)],
}

_WRITERS: dict[str, Callable[[Floats], Bytes]] = {
    "f32": lambda values: values.astype("<f4"),
    "f16": lambda values: values.astype("<f2"),
    "bf16": _write_bf16,
    "i32": _integers("<i4"),
    "i64": lambda values: (values if values.dtype.kind == "i" else np.rint(values)).astype("<i8"),
    "i8": _integers("i1"),
    "u8": _integers("u1"),
    "u4": lambda values: _write_nibbles(np.clip(np.rint(values), 0, 15).astype(np.uint8)),
    "e4m3": lambda values: nearest(values, E4M3),
    "e8m0": lambda values: nearest(values, powers(np.arange(256))),
    "e2m1": lambda values: _write_nibbles(nearest(values, E2M1)),
}
