"""GGML's block types in plain numpy, each decoded as it is defined and encoded in the most direct way.

Layouts: https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h. All numbers are little-endian.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .floats import E2M1, E4M3, nearest, powers

# Arrays of float64 and of uint8. numpy's own types would call most of the sums and shifts below something else.
Floats = Any
Bytes = Any

#: What the codes of the iq4 types stand for.
IQ4 = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float64)

_TWO_BITS = np.array([0, 2, 4, 6], np.uint8)[:, None]


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


def _decode_q4_1(blocks: Bytes) -> Floats:
    return _half(blocks, 0) * _nibbles(blocks[:, 4:]) + _half(blocks, 2)


def _encode_q4_1(values: Floats) -> Bytes:
    scale, least, codes = _above_least(values, 15)
    return np.hstack([_halves(scale), _halves(least), _pack(codes)])


def _five_bits(blocks: Bytes) -> Bytes:
    """32 bits, then nibbles: each bit is a code's highest."""
    return _nibbles(blocks[:, 4:]) | np.unpackbits(blocks[:, :4], axis=-1, bitorder="little") << 4


def _pack_five_bits(codes: Bytes) -> Bytes:
    return np.hstack([np.packbits(codes >> 4, axis=-1, bitorder="little"), _pack(codes & 15)])


def _decode_q5_0(blocks: Bytes) -> Floats:
    return _half(blocks, 0) * (_five_bits(blocks[:, 2:]).astype(np.float64) - 16)


def _encode_q5_0(values: Floats) -> Bytes:
    scale = _half(_halves(_extreme(values) / -16), 0)
    codes = (_codes(values * _inverse(scale), -16, 15) + 16).astype(np.uint8)
    return np.hstack([_halves(scale), _pack_five_bits(codes)])


def _decode_q5_1(blocks: Bytes) -> Floats:
    return _half(blocks, 0) * _five_bits(blocks[:, 4:]) + _half(blocks, 2)


def _encode_q5_1(values: Floats) -> Bytes:
    scale, least, codes = _above_least(values, 31)
    return np.hstack([_halves(scale), _halves(least), _pack_five_bits(codes)])


def _above_least(values: Floats, most: int) -> tuple[Floats, Floats, Bytes]:
    """The scale, the least value, and codes from 0 to `most` for what lies above that."""
    least = _half(_halves(values.min(-1)), 0)
    scale = _half(_halves((values.max(-1, keepdims=True) - least) / most), 0)
    return scale, least, _codes((values - least) * _inverse(scale), 0, most).astype(np.uint8)


def _decode_q2_k(blocks: Bytes) -> Floats:
    """Sixteen groups of 16 with a 4-bit scale and a 4-bit minimum each; 32 bytes hold the codes of eight groups."""
    packed = blocks[:, :16]
    codes = (blocks[:, 16:80].reshape(-1, 2, 1, 32) >> _TWO_BITS & 3).reshape(-1, 16, 16)
    return (_half(blocks, 80) * (packed & 15))[:, :, None] * codes - (_half(blocks, 82) * (packed >> 4))[:, :, None]


def _encode_q2_k(values: Floats) -> Bytes:
    d, dmin, scales, minima, codes = _with_minima(values.reshape(-1, 16, 16), 15, 3)
    packed = np.bitwise_or.reduce(codes.reshape(-1, 2, 4, 32) << _TWO_BITS, axis=2).reshape(-1, 64)
    return np.hstack([scales | minima << 4, packed, _halves(d), _halves(dmin)])


def _decode_q3_k(blocks: Bytes) -> Floats:
    """Sixteen groups of 16 with a 6-bit scale each. Codes have their upper bit in 32 bytes of their own, bit g of byte i
    being that of value i of the g-th 32."""
    packed = blocks[:, 96:108]
    high = (packed[:, None, 8:] >> _TWO_BITS & 3).reshape(-1, 16)
    scales = (_nibbles(packed[:, :8]) | high << 4).astype(np.float64) - 32
    low = (blocks[:, 32:96].reshape(-1, 2, 1, 32) >> _TWO_BITS & 3).reshape(-1, 8, 32)
    upper = blocks[:, None, :32] >> np.arange(8, dtype=np.uint8)[:, None] & 1
    codes = (low | upper << 2).reshape(-1, 16, 16).astype(np.float64) - 4
    return (_half(blocks, 108) * scales)[:, :, None] * codes


def _encode_q3_k(values: Floats) -> Bytes:
    groups = values.reshape(-1, 16, 16)
    d, scales = _six_bit_scales(_extreme(groups)[:, :, 0] / -4)
    codes = (_codes(groups * _inverse((d * (scales.astype(np.float64) - 32))[:, :, None]), -4, 3) + 4).astype(np.uint8)
    upper = np.bitwise_or.reduce(codes.reshape(-1, 8, 32) >> 2 << np.arange(8, dtype=np.uint8)[:, None], axis=1)
    low = np.bitwise_or.reduce((codes & 3).reshape(-1, 2, 4, 32) << _TWO_BITS, axis=2).reshape(-1, 64)
    high = np.bitwise_or.reduce((scales >> 4).reshape(-1, 4, 4) << _TWO_BITS, axis=1)
    return np.hstack([upper, low, _pack(scales & 15), high, _halves(d)])


def _six_bit_scales(wanted: Floats) -> tuple[Floats, Bytes]:
    """A column of d, and codes such that d * (code - 32) is about what is wanted."""
    d = _half(_halves(np.abs(wanted).max(-1) / 31), 0)
    return d, (_codes(wanted * _inverse(d), -32, 31) + 32).astype(np.uint8)


def _with_minima(groups: Floats, finest: int, most: int) -> tuple[Floats, Floats, Bytes, Bytes, Bytes]:
    """d, dmin, a scale and a minimum up to `finest` for each group, and codes from 0 to `most`."""
    lowest = np.maximum(-groups.min(-1), 0)
    steps = np.maximum(groups.max(-1) + lowest, 0) / most
    d, dmin = (_half(_halves(x.max(-1) / finest), 0) for x in (steps, lowest))
    scales = _codes(steps * _inverse(d), 0, finest).astype(np.uint8)
    minima = _codes(lowest * _inverse(dmin), 0, finest).astype(np.uint8)
    step, least = (d * scales)[:, :, None], (dmin * minima)[:, :, None]
    return d, dmin, scales, minima, _codes((groups + least) * _inverse(step), 0, most).astype(np.uint8)


def _scales_and_minima(packed: Bytes) -> tuple[Bytes, Bytes]:
    """Eight scales and eight minima of 6 bits from 12 bytes."""
    low, mid, high = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    return np.hstack([low & 63, (high & 15) | (low >> 6) << 4]), np.hstack([mid & 63, high >> 4 | (mid >> 6) << 4])


def _pack_scales_and_minima(scales: Bytes, minima: Bytes) -> Bytes:
    low = scales[:, :4] | scales[:, 4:] >> 4 << 6
    mid = minima[:, :4] | minima[:, 4:] >> 4 << 6
    return np.hstack([low, mid, scales[:, 4:] & 15 | minima[:, 4:] << 4])


def _decode_q4_k(blocks: Bytes) -> Floats:
    """Eight groups of 32 with a 6-bit scale and a 6-bit minimum each; 32 bytes hold the nibbles of two groups."""
    scales, minima = _scales_and_minima(blocks[:, 4:16])
    codes = _nibbles(blocks[:, 16:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    return (_half(blocks, 0) * scales)[:, :, None] * codes - (_half(blocks, 2) * minima)[:, :, None]


def _encode_q4_k(values: Floats) -> Bytes:
    d, dmin, scales, minima, codes = _with_minima(values.reshape(-1, 8, 32), 63, 15)
    packed = _pack(codes.reshape(-1, 4, 64)).reshape(-1, 128)
    return np.hstack([_halves(d), _halves(dmin), _pack_scales_and_minima(scales, minima), packed])


def _decode_q5_k(blocks: Bytes) -> Floats:
    """As q4_k, with a fifth bit: bit g of byte i is that of value i of group g."""
    scales, minima = _scales_and_minima(blocks[:, 4:16])
    fifth = blocks[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None] & 1
    codes = _nibbles(blocks[:, 48:].reshape(-1, 4, 32)).reshape(-1, 8, 32) | fifth << 4
    return (_half(blocks, 0) * scales)[:, :, None] * codes - (_half(blocks, 2) * minima)[:, :, None]


def _encode_q5_k(values: Floats) -> Bytes:
    d, dmin, scales, minima, codes = _with_minima(values.reshape(-1, 8, 32), 63, 31)
    fifth = np.bitwise_or.reduce(codes >> 4 << np.arange(8, dtype=np.uint8)[:, None], axis=1)
    packed = _pack((codes & 15).reshape(-1, 4, 64)).reshape(-1, 128)
    return np.hstack([_halves(d), _halves(dmin), _pack_scales_and_minima(scales, minima), fifth, packed])


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


def _decode_iq4_nl(blocks: Bytes) -> Floats:
    return _half(blocks, 0) * IQ4[_nibbles(blocks[:, 2:])]


def _encode_iq4_nl(values: Floats) -> Bytes:
    scale = _half(_halves(_extreme(values) / -127), 0)
    return np.hstack([_halves(scale), _pack(nearest(values * _inverse(scale), IQ4))])


def _decode_iq4_xs(blocks: Bytes) -> Floats:
    """Eight groups of 32 with a 6-bit scale each: two upper bits in 16 bits for all, nibbles in 4 bytes, low ones first."""
    high = blocks[:, 2:4].copy().view("<u2") >> np.arange(0, 16, 2, dtype=np.uint16) & 3
    low = (blocks[:, 4:8, None] >> np.array([0, 4], np.uint8) & 15).reshape(-1, 8)
    scales = (low | high << 4).astype(np.float64) - 32
    return (_half(blocks, 0) * scales)[:, :, None] * IQ4[_nibbles(blocks[:, 8:].reshape(-1, 8, 16))]


def _encode_iq4_xs(values: Floats) -> Bytes:
    groups = values.reshape(-1, 8, 32)
    d, scales = _six_bit_scales(_extreme(groups)[:, :, 0] / -127)
    codes = nearest(groups * _inverse((d * (scales.astype(np.float64) - 32))[:, :, None]), IQ4)
    high = np.bitwise_or.reduce((scales >> 4).astype("<u2") << np.arange(0, 16, 2, dtype=np.uint16), axis=1)
    low = (scales[:, 0::2] & 15) | scales[:, 1::2] << 4
    return np.hstack([_halves(d), high[:, None].astype("<u2").view(np.uint8), low, _pack(codes).reshape(-1, 128)])


def _decode_mxfp4(blocks: Bytes) -> Floats:
    return powers(blocks[:, :1]) * E2M1[_nibbles(blocks[:, 1:])]


def _encode_mxfp4(values: Floats) -> Bytes:
    largest = np.abs(values).max(-1, keepdims=True)
    scale = (np.ceil(np.log2(np.maximum(largest, 2.0**-100) / 6)) + 127).astype(np.uint8)
    return np.hstack([scale, _pack(nearest(values / powers(scale), E2M1))])


def _decode_nvfp4(blocks: Bytes) -> Floats:
    """Four groups of 16 with an unsigned e4m3 scale each, of which code 127 is zero."""
    scales = E4M3[blocks[:, :4] & 127]
    scales = np.where(np.isnan(scales), 0, scales)
    return scales[:, :, None] * E2M1[_nibbles(blocks[:, 4:].reshape(-1, 4, 8))]


def _encode_nvfp4(values: Floats) -> Bytes:
    groups = values.reshape(-1, 4, 16)
    scales = nearest(np.abs(groups).max(-1) / 6, E4M3[:127])
    codes = nearest(groups * _inverse(E4M3[scales])[:, :, None], E2M1)
    return np.hstack([scales, _pack(codes).reshape(-1, 32)])


DECODERS: dict[str, Callable[[Bytes], Floats]] = {
    "q8_0": _decode_q8_0, "q4_0": _decode_q4_0, "q4_1": _decode_q4_1, "q5_0": _decode_q5_0, "q5_1": _decode_q5_1,
    "q2_k": _decode_q2_k, "q3_k": _decode_q3_k, "q4_k": _decode_q4_k, "q5_k": _decode_q5_k, "q6_k": _decode_q6_k,
    "iq4_nl": _decode_iq4_nl, "iq4_xs": _decode_iq4_xs, "mxfp4": _decode_mxfp4, "nvfp4": _decode_nvfp4,
}  # fmt: skip

ENCODERS: dict[str, Callable[[Floats], Bytes]] = {
    "q8_0": _encode_q8_0, "q4_0": _encode_q4_0, "q4_1": _encode_q4_1, "q5_0": _encode_q5_0, "q5_1": _encode_q5_1,
    "q2_k": _encode_q2_k, "q3_k": _encode_q3_k, "q4_k": _encode_q4_k, "q5_k": _encode_q5_k, "q6_k": _encode_q6_k,
    "iq4_nl": _encode_iq4_nl, "iq4_xs": _encode_iq4_xs, "mxfp4": _encode_mxfp4, "nvfp4": _encode_nvfp4,
}  # fmt: skip
