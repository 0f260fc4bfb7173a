"""The small floating-point types: what their codes stand for."""

from __future__ import annotations

from typing import Any

import numpy as np

# Arrays of float64 and of uint8 (see blocks.py).
Floats = Any
Bytes = Any


def _floats(exponent_bits: int, fraction_bits: int, bias: int) -> Floats:
    """The values of all codes of a type: sign, exponent, fraction."""
    codes = np.arange(1 << (1 + exponent_bits + fraction_bits))
    sign = 1 - 2.0 * (codes >> (exponent_bits + fraction_bits))
    exponent = codes >> fraction_bits & ((1 << exponent_bits) - 1)
    fraction = (codes & ((1 << fraction_bits) - 1)) / (1 << fraction_bits)
    return sign * np.where(exponent == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (exponent - bias))


#: Values of the 16 codes of e2m1 and the 256 of e4m3, which has no infinities: its last code of either sign is no number.
E2M1 = _floats(2, 1, 1)
E4M3 = _floats(4, 3, 7)
E4M3[[127, 255]] = np.nan


def powers(codes: Bytes) -> Floats:
    """The values of e8m0 codes: powers of two, and no number for the last."""
    return np.where(codes == 255, np.nan, 2.0 ** (codes.astype(np.float64) - 127))


def nearest(values: Floats, table: Floats) -> Bytes:
    """The codes of `table` whose values come closest."""
    known = np.flatnonzero(np.isfinite(table))
    order = known[np.argsort(table[known], kind="stable")]
    ladder = table[order]
    return order[np.searchsorted((ladder[1:] + ladder[:-1]) / 2, values)].astype(np.uint8)
