"""Writing quantised matrices the way published checkpoints store them, for tests of what reads them."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ..compute.checkpoint import ZEROS
from ..compute.quantised import Format, beside
from .storage import dequantise, quantise


class Stored(Struct, frozen=True):
    """A tensor as a safetensors file holds it: the format's word for its type, its shape and its bytes."""

    word: str
    shape: tuple[int, ...]
    data: bytes


#: The largest magnitude of a storage type's values, after the zero of unsigned codes was subtracted.
_PEAKS = {"e4m3": 448.0, "e2m1": 6.0, "i8": 127.0, "u4": 7.0}

_WORDS = {"f32": "F32", "bf16": "BF16", "f16": "F16"}


def write_stored(file: Path, tensors: Mapping[str, Stored]) -> Path:
    """One safetensors file of tensors of any type."""
    header: dict[str, Any] = {}
    at = 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": tensor.word, "shape": tensor.shape, "data_offsets": [at, at + len(tensor.data)]}
        at += len(tensor.data)
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(tensor.data for tensor in tensors.values()))
    return file


def store(name: str, values: NDArray[np.floating], row: Format, block: tuple[int, int], scale: str) -> dict[str, Stored]:
    """The tensors that stand for a matrix, or for several, in the format `row`, with scales of the file's word `scale` for
    every `block` of rows and columns."""
    *lead, rows, cols = values.shape
    peaks = _largest(values, block) / _PEAKS[row.dtype]
    factor = float(peaks.max()) / 448 if row.times or row.over else 1.0
    kind = row.grid[scale]
    wanted = peaks / factor
    if kind == "e8m0":  # no value may be out of reach
        wanted = 2.0 ** np.ceil(np.log2(wanted))
    coded = quantise(kind, wanted)
    grid = dequantise(kind, coded, peaks.shape) * factor
    codes = values / grid.repeat(block[0], -2)[..., :rows, :].repeat(block[1], -1)[..., :cols]
    found = {beside(name, row.scales): Stored(_WORDS.get(scale, scale), peaks.shape, coded)}
    shape = (*lead, rows, cols // 2) if row.dtype == "e2m1" else values.shape
    if row.codes == "X.weight_blocks":
        shape = (*lead, rows, cols // 32, 16)
    if row.dtype in ZEROS:
        codes = codes + 8
        shape = (*lead, rows, cols // ZEROS[row.dtype])
        found[name + "_shape"] = Stored("I64", (len(values.shape),), quantise("i64", np.array(values.shape)))
    found[beside(name, row.codes)] = Stored(row.word, shape, quantise(row.dtype, codes))
    divisor = 4.0 if row.times else 1 / factor
    for marks, number in ((row.times, factor * divisor if row.over else factor), (row.over, divisor)):
        found.update({beside(name, mark): Stored("F32", (1,), quantise("f32", np.array([number]))) for mark in marks})
    return found


def _largest(values: NDArray[np.floating], block: tuple[int, int]) -> NDArray[np.float64]:
    """The largest magnitude of every block, the last ones of which may be incomplete."""
    *lead, rows, cols = values.shape
    down, across = math.ceil(rows / block[0]), math.ceil(cols / block[1])
    whole = np.zeros((*lead, down * block[0], across * block[1]))
    whole[..., :rows, :cols] = np.abs(values)
    found: NDArray[np.float64] = whole.reshape(*lead, down, block[0], across, block[1]).max((-3, -1))
    return found
