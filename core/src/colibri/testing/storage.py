"""The storage types of weights, in plain numpy: the second opinion on the native ones, and what writes small models.

Layouts: spec of GGML blocks, https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h. All numbers are
little-endian; a block's values lie along the last dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..compute.checkpoint import BLOCKS

# Arrays of float64 and of uint8. numpy's own types would call most of the sums and shifts below something else.
Floats = Any
Bytes = Any


def dequantise(dtype: str, data: bytes, shape: Sequence[int]) -> NDArray[np.float64]:
    """The values of a tensor from its bytes."""
    raw = np.frombuffer(data, np.uint8)
    values: NDArray[np.float64]
    if dtype == "f32":
        values = raw.view("<f4").astype(np.float64)
    elif dtype == "f16":
        values = raw.view("<f2").astype(np.float64)
    elif dtype == "bf16":
        values = (raw.view("<u2").astype("<u4") << 16).view("<f4").astype(np.float64)
    else:
        values = _DECODERS[dtype](raw.reshape(-1, BLOCKS[dtype][1]))
    return values.reshape(tuple(shape))


def quantise(dtype: str, values: NDArray[np.floating]) -> bytes:
    """A tensor's bytes from its values, each block rounded in the most direct way."""
    if dtype == "f32":
        return values.astype("<f4").tobytes()
    if dtype == "f16":
        return values.astype("<f2").tobytes()
    if dtype == "bf16":
        bits = values.astype("<f4").view("<u4").astype(np.uint64)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()
    block = BLOCKS[dtype][0]
    if values.shape[-1] % block:
        raise ValueError(f"rows of {values.shape[-1]} values are no whole blocks of {block} ({dtype})")
    return bytes(_ENCODERS[dtype](values.astype(np.float64).reshape(-1, block)).tobytes())


def _half(blocks: Bytes, at: int) -> Floats:
    """The f16 at byte `at` of each block, as a column."""
    return blocks[:, at : at + 2].copy().view("<f2").astype(np.float64)


def _halves(values: Floats) -> Bytes:
    """A column of values as f16 bytes."""
    return values.reshape(-1, 1).astype("<f2").view(np.uint8)


def _nibbles(packed: Bytes) -> Bytes:
    """All low nibbles, then all high nibbles."""
    return np.concatenate([packed & 15, packed >> 4], axis=-1)


def _pack(codes: Bytes) -> Bytes:
    """The reverse of _nibbles."""
    half = codes.shape[-1] // 2
    return codes[..., :half] | codes[..., half:] << 4


def _inverse(scale: Floats) -> Floats:
    return np.divide(1.0, scale, out=np.zeros_like(scale), where=scale != 0)


def _extreme(values: Floats) -> Floats:
    """The value of largest magnitude of each row, with its sign, as a column."""
    return np.take_along_axis(values, np.abs(values).argmax(-1, keepdims=True), -1)


def _codes(values: Floats, low: int, high: int) -> Any:
    return np.clip(np.rint(values), low, high).astype(np.int64)


def _decode_q8_0(blocks: Bytes) -> Floats:
    return _half(blocks, 0) * blocks[:, 2:].view(np.int8)


def _encode_q8_0(values: Floats) -> Bytes:
    scale = _half(_halves(np.abs(values).max(-1) / 127), 0)
    return np.hstack([_halves(scale), _codes(values * _inverse(scale), -127, 127).astype(np.int8).view(np.uint8)])


def _decode_q4_0(blocks: Bytes) -> Floats:
    return _half(blocks, 0) * (_nibbles(blocks[:, 2:]).astype(np.float64) - 8)


def _encode_q4_0(values: Floats) -> Bytes:
    scale = _half(_halves(_extreme(values) / -8), 0)
    return np.hstack([_halves(scale), _pack((_codes(values * _inverse(scale), -8, 7) + 8).astype(np.uint8))])


def _decode_q5_0(blocks: Bytes) -> Floats:
    fifth = np.unpackbits(blocks[:, 2:6], axis=-1, bitorder="little")
    return _half(blocks, 0) * ((_nibbles(blocks[:, 6:]) | fifth << 4).astype(np.float64) - 16)


def _encode_q5_0(values: Floats) -> Bytes:
    scale = _half(_halves(_extreme(values) / -16), 0)
    codes = (_codes(values * _inverse(scale), -16, 15) + 16).astype(np.uint8)
    return np.hstack([_halves(scale), np.packbits(codes >> 4, axis=-1, bitorder="little"), _pack(codes & 15)])


def _decode_q4_k(blocks: Bytes) -> Floats:
    """Eight groups of 32 with a 6-bit scale and a 6-bit minimum each; 32 bytes hold the nibbles of two groups."""
    packed = blocks[:, 4:16]
    low, mid, high = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.hstack([low & 63, (high & 15) | (low >> 6) << 4])
    minima = np.hstack([mid & 63, high >> 4 | (mid >> 6) << 4])
    codes = _nibbles(blocks[:, 16:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    return (_half(blocks, 0) * scales)[:, :, None] * codes - (_half(blocks, 2) * minima)[:, :, None]


def _encode_q4_k(values: Floats) -> Bytes:
    groups = values.reshape(-1, 8, 32)
    lowest = np.maximum(-groups.min(-1), 0)
    steps = np.maximum(groups.max(-1) + lowest, 0) / 15
    d, dmin = (_half(_halves(x.max(-1) / 63), 0) for x in (steps, lowest))
    scales = _codes(steps * _inverse(d), 0, 63).astype(np.uint8)
    minima = _codes(lowest * _inverse(dmin), 0, 63).astype(np.uint8)
    step, least = (d * scales)[:, :, None], (dmin * minima)[:, :, None]
    codes = _codes((groups + least) * _inverse(step), 0, 15).astype(np.uint8)
    low = scales[:, :4] | scales[:, 4:] >> 4 << 6
    mid = minima[:, :4] | minima[:, 4:] >> 4 << 6
    high = scales[:, 4:] & 15 | minima[:, 4:] << 4
    return np.hstack([_halves(d), _halves(dmin), low, mid, high, _pack(codes.reshape(-1, 4, 64)).reshape(-1, 128)])


def _decode_q6_k(blocks: Bytes) -> Floats:
    """Sixteen groups of 16 with an int8 scale each; each half of 128 values has 64 bytes of nibbles and 32 of high bits."""
    low = _nibbles(blocks[:, :128].reshape(-1, 2, 64)).reshape(-1, 2, 4, 32)
    pairs = blocks[:, 128:192].reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None]
    codes = (low | (pairs & 3) << 4).reshape(-1, 16, 16).astype(np.float64) - 32
    scales = blocks[:, 192:208].view(np.int8)
    return (_half(blocks, 208) * scales)[:, :, None] * codes


def _encode_q6_k(values: Floats) -> Bytes:
    groups = values.reshape(-1, 16, 16)
    wanted = _extreme(groups)[:, :, 0] / -32
    d = _half(_halves(np.abs(wanted).max(-1) / 127), 0)
    scales = _codes(wanted * _inverse(d), -127, 127)
    step = (d * scales)[:, :, None]
    codes = (_codes(groups * _inverse(step), -32, 31) + 32).astype(np.uint8).reshape(-1, 2, 4, 32)
    low = _pack((codes & 15).reshape(-1, 2, 128)).reshape(-1, 128)
    high = (codes >> 4) << np.array([0, 2, 4, 6], np.uint8)[:, None]
    pairs = np.bitwise_or.reduce(high, axis=2).reshape(-1, 64)
    return np.hstack([low, pairs, scales.astype(np.int8).view(np.uint8), _halves(d)])


_DECODERS = {"q8_0": _decode_q8_0, "q4_0": _decode_q4_0, "q5_0": _decode_q5_0, "q4_k": _decode_q4_k, "q6_k": _decode_q6_k}
_ENCODERS = {"q8_0": _encode_q8_0, "q4_0": _encode_q4_0, "q5_0": _encode_q5_0, "q4_k": _encode_q4_k, "q6_k": _encode_q6_k}
