from __future__ import annotations

import struct

import numpy as np
import pytest

from colibri._native import dequantize
from colibri.compute.checkpoint import BLOCKS
from colibri.testing.storage import dequantise, quantise

#: The largest error of a value, relative to the largest value of its row.
ERRORS = {"f32": 0, "f16": 5e-4, "bf16": 4e-3, "q8_0": 5e-3, "q4_0": 0.13, "q5_0": 0.065, "q4_k": 0.08, "q6_k": 0.035}


@pytest.mark.parametrize("dtype", BLOCKS)
def test_what_is_quantised_comes_back_rounded(dtype: str) -> None:
    values = np.random.default_rng(1).uniform(-1, 1, (6, 512)).astype(np.float32)
    values[0] = 0
    values[1] = 0.25
    data = quantise(dtype, values)
    block, size = BLOCKS[dtype]
    assert len(data) == values.size // block * size
    found = dequantise(dtype, data, values.shape)
    assert np.abs(found - values).max() <= ERRORS[dtype]
    assert (found[0] == 0).all()


@pytest.mark.parametrize("dtype", BLOCKS)
def test_the_native_runtime_decodes_any_bytes_alike(dtype: str) -> None:
    block, size = BLOCKS[dtype]
    raw = np.random.default_rng(2).integers(0, 256, (64, size), dtype=np.uint8)
    halves = {"q8_0": [0], "q4_0": [0], "q5_0": [0], "q4_k": [0, 2], "q6_k": [208]}.get(dtype, [])
    for at in halves:  # any scale that is a number; one is a denormal, one is zero
        scales = np.random.default_rng(at).normal(0, 1, 64).astype("<f2")
        scales[:2] = [6e-8, 0]
        raw[:, at : at + 2] = scales.view(np.uint8).reshape(64, 2)
    data, count = raw.tobytes(), 64 * block
    found = np.frombuffer(dequantize(dtype, data, count), np.float32)
    expected = dequantise(dtype, data, (count,)).astype(np.float32)
    assert np.allclose(found, expected, rtol=1e-6, atol=1e-6, equal_nan=True)


def test_known_blocks() -> None:
    eighth = struct.pack("<e", 0.125)
    assert dequantise("q8_0", eighth + bytes([1, 255] + [0] * 30), (32,))[:3].tolist() == [0.125, -0.125, 0]
    four = dequantise("q4_0", eighth + bytes([0xF0] + [0x88] * 15), (32,))
    assert (four[0], four[1], four[16], four[17]) == (-1, 0, 0.875, 0)
    five = dequantise("q5_0", eighth + struct.pack("<I", 1 << 16) + bytes([0x5A] + [0] * 15), (32,))
    assert (five[0], five[16]) == ((10 - 16) * 0.125, (5 + 16 - 16) * 0.125)


def test_rows_have_to_be_whole_blocks() -> None:
    with pytest.raises(ValueError, match="no whole blocks of 256"):
        quantise("q4_k", np.zeros((4, 128)))
