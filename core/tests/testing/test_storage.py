from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from colibri._native import dequantize
from colibri.compute.checkpoint import BLOCKS, TOGETHER, Scales, Tensor
from colibri.errors import CheckpointError
from colibri.testing.storage import dequantise, quantise, values_of

#: The largest error of a value between -1 and 1, of types that hold such values by themselves.
ERRORS = {
    "f32": 0, "f16": 5e-4, "bf16": 4e-3, "e4m3": 0.032, "e2m1": 0.25, "q8_0": 5e-3, "q4_0": 0.13, "q4_1": 0.07,
    "q5_0": 0.065, "q5_1": 0.035, "q2_k": 0.4, "q3_k": 0.26, "q4_k": 0.08, "q5_k": 0.04, "q6_k": 0.035,
    "iq4_nl": 0.15, "iq4_xs": 0.17, "mxfp4": 0.26, "nvfp4": 0.2,
}  # fmt: skip

#: Types of whole numbers, and of powers of two.
NUMBERS = {"i32": [-1000, 7], "i64": [-1000, 7], "i8": [-128, 127], "u8": [0, 255], "u4": [0, 15], "e8m0": [0.25, 4]}

#: Where the halves of a block lie that its values are multiplied with.
HALVES = {
    **dict.fromkeys(("q8_0", "q4_0", "q5_0", "iq4_nl", "iq4_xs"), (0,)),
    **dict.fromkeys(("q4_1", "q5_1", "q4_k", "q5_k"), (0, 2)),
    "q2_k": (80, 82),
    "q3_k": (108,),
    "q6_k": (208,),
}


def test_every_type_is_tested() -> None:
    assert {*ERRORS, *NUMBERS, *TOGETHER} == set(BLOCKS)


@pytest.mark.parametrize("dtype", ERRORS)
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


@pytest.mark.parametrize("dtype", NUMBERS)
def test_numbers_come_back_as_they_were(dtype: str) -> None:
    values = np.array(NUMBERS[dtype])
    assert dequantise(dtype, quantise(dtype, values), values.shape).tolist() == values.tolist()


@pytest.mark.parametrize(("dtype", "error"), [("i4x16", 0.075), ("i8x16", 0.0045)])
@pytest.mark.parametrize("shape", [(16, 64), (1, 128), (37, 320)])
def test_interleaved_rows_come_back_rounded(dtype: str, error: float, shape: tuple[int, int], tmp_path: Path) -> None:
    values = np.random.default_rng(3).uniform(-1, 1, shape)
    values[0] = 0
    data = quantise(dtype, values)
    rows = -(-shape[0] // 16) * 16
    assert len(data) == rows * shape[1] // 64 * BLOCKS[dtype][1]
    found = dequantise(dtype, data, shape)
    assert np.abs(found - values).max() <= error
    assert (found[0] == 0).all()
    (tmp_path / "w").write_bytes(data)
    whole = Tensor("w", dtype, shape, tmp_path / "w", 0, len(data))
    assert (values_of(whole) == found).all()
    if shape[0] > 16:
        assert (values_of(whole.rows(16, shape[0])) == found[16:]).all()
        with pytest.raises(CheckpointError, match="16 rows interleaved"):
            whole.rows(8, 24)
    with pytest.raises(CheckpointError, match="no part 0"):
        whole.part(0)


@pytest.mark.parametrize("dtype", [dtype for dtype in BLOCKS if dtype not in TOGETHER])
def test_the_native_runtime_decodes_any_bytes_alike(dtype: str) -> None:
    block, size = BLOCKS[dtype]
    raw = np.random.default_rng(2).integers(0, 256, (64, size), dtype=np.uint8)
    for at in HALVES.get(dtype, ()):  # any scale that is a number; one is a denormal, one is zero
        scales = np.random.default_rng(at).normal(0, 1, 64).astype("<f2")
        scales[:2] = [6e-8, 0]
        raw[:, at : at + 2] = scales.view(np.uint8).reshape(64, 2)
    data, count = raw.tobytes(), 64 * block
    found = np.frombuffer(dequantize(dtype, data, count), np.float32)
    with np.errstate(over="ignore"):  # mxfp4 goes further than float32
        expected = dequantise(dtype, data, (count,)).astype(np.float32)
    assert np.allclose(found, expected, rtol=1e-6, atol=1e-6, equal_nan=True)


def test_known_blocks() -> None:
    eighth = struct.pack("<e", 0.125)
    assert dequantise("q8_0", eighth + bytes([1, 255] + [0] * 30), (32,))[:3].tolist() == [0.125, -0.125, 0]
    four = dequantise("q4_0", eighth + bytes([0xF0] + [0x88] * 15), (32,))
    assert (four[0], four[1], four[16], four[17]) == (-1, 0, 0.875, 0)
    five = dequantise("q5_0", eighth + struct.pack("<I", 1 << 16) + bytes([0x5A] + [0] * 15), (32,))
    assert (five[0], five[16]) == ((10 - 16) * 0.125, (5 + 16 - 16) * 0.125)


def test_known_small_floats() -> None:
    """The limits of each type, by its definition."""
    assert dequantise("e4m3", bytes([0x00, 0x01, 0x08, 0x38, 0x7E, 0xC0]), (6,)).tolist() == [0, 2**-9, 2**-6, 1, 448, -2]
    assert np.isnan(dequantise("e4m3", bytes([0x7F, 0xFF]), (2,))).all()
    assert dequantise("e2m1", bytes([0x10, 0x32, 0x54, 0x76, 0xF9]), (10,)).tolist() == [
        0,
        0.5,
        1,
        1.5,
        2,
        3,
        4,
        6,
        -0.5,
        -6,
    ]
    assert dequantise("e8m0", bytes([0, 127, 254]), (3,)).tolist() == [2.0**-127, 1, 2.0**127]
    assert np.isnan(dequantise("e8m0", b"\xff", (1,))).all()
    assert dequantise("u4", bytes([0x2F]), (2,)).tolist() == [15, 2]


def test_scales_are_where_a_tensor_says(tmp_path: Path) -> None:
    """Rows 1 and 3 of a matrix in blocks of 2 by 3, its rows 5 bytes apart, with a zero for each block."""
    file = tmp_path / "x"
    codes, grid = bytes(range(5, 15)), struct.pack("<4f", 1, 10, 100, 1000)
    file.write_bytes(codes + grid + bytes([1, 2, 0, 0, 3, 4, 0, 0]))
    zeros = Tensor("z", "u8", (1, 8), file, 26, 8)
    scales = Scales(Tensor("s", "f32", (2, 2), file, 10, 16), (2, 3), first=1, every=2, factor=0.5, zeros=zeros)
    tensor = Tensor("x", "u8", (2, 4), file, 0, 9, pitch=5, scales=scales)
    assert values_of(tensor).tolist() == [
        [(5 - 1) * 0.5, (6 - 1) * 0.5, (7 - 1) * 0.5, (8 - 3) * 5],
        [(10 - 2) * 50, (11 - 2) * 50, (12 - 2) * 50, (13 - 4) * 500],
    ]


def test_rows_have_to_be_whole_blocks() -> None:
    with pytest.raises(ValueError, match="no whole blocks of 256"):
        quantise("q4_k", np.zeros((4, 128)))
