"""Writing the quantised formats of published models, so that a family's tests can turn a small float32 model into one.

An encoder takes a matrix, or several in one array, and gives the tensors a file stores for it, by their published names with
X.weight for the matrix, and the values that they stand for. The scales are the most direct ones, not the best.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..compute.checkpoint import open_checkpoint
from .floats import E2M1, E4M3, nearest, powers
from .storage import quantise, values_of

Values = NDArray[np.float64]

#: A tensor of a file: its type, as safetensors spells it, and an array of its elements.
Stored = tuple[str, NDArray[Any]]
Encoder = Callable[[Values], tuple[dict[str, Stored], Values]]


def fp8(
    matrix: Values, *, block: int = 128, scale: str = "X.weight_scale_inv", powers_only: bool = False
) -> tuple[dict[str, Stored], Values]:
    """8-bit floats, a float32 scale or a power of two for every block x block of them."""
    sizes = _largest(matrix, block, block) / 448
    sizes = np.where(sizes > 0, sizes, 1)
    exponents = (np.ceil(np.log2(sizes)) + 127).astype(np.uint8)
    stored = ("F8_E8M0", exponents) if powers_only else ("F32", sizes.astype(np.float32))
    spread = _spread(powers(exponents) if powers_only else stored[1], block, block, matrix)
    codes = nearest(matrix / spread, E4M3)
    return {"X.weight": ("F8_E4M3", codes), scale: stored}, E4M3[codes] * spread


def fp8_shards(matrix: Values, *, shards: int, block: int = 128) -> tuple[dict[str, Stored], Values]:
    """As `fp8`, `shards` runs of rows one by one: the last blocks of each may be cut off."""
    found = [fp8(part, block=block) for part in np.split(matrix, shards)]
    joined = {
        mark: (word, np.concatenate([stored[mark][1] for stored, _ in found])) for mark, (word, _) in found[0][0].items()
    }
    return joined, np.concatenate([values for _, values in found])


def mxfp4(
    matrix: Values, *, codes: str = "X.weight_packed", scale: str = "X.weight_scale", types: tuple[str, str] = ("U8", "U8")
) -> tuple[dict[str, Stored], Values]:
    """4-bit floats, a power of two for every 32 of a row."""
    sizes = np.maximum(_largest(matrix, 1, 32), 2.0**-100)
    exponents = (np.floor(np.log2(sizes)) - 2 + 127).astype(np.uint8)
    spread = _spread(powers(exponents), 1, 32, matrix)
    found = nearest(matrix / spread, E2M1)
    return {codes: (types[0], found[..., 0::2] | found[..., 1::2] << 4), scale: (types[1], exponents)}, E2M1[found] * spread


def int4(matrix: Values, *, group: int = 32) -> tuple[dict[str, Stored], Values]:
    """4-bit integers around 8, eight in a word, and a float32 scale for every `group` of a row."""
    sizes = _largest(matrix, 1, group) / 7
    scales = np.where(sizes > 0, sizes, 1).astype(np.float32)
    spread = _spread(scales, 1, group, matrix)
    found = np.clip(np.rint(matrix / spread) + 8, 0, 15)
    words = (found.astype(np.uint32).reshape(*matrix.shape[:-1], -1, 8) << np.arange(0, 32, 4, dtype=np.uint32)).sum(-1)
    shape = np.array(matrix.shape, np.int64)
    stored = {"X.weight_packed": ("I32", words.astype(np.uint32)), "X.weight_scale": ("F32", scales)}
    return {**stored, "X.weight_shape": ("I64", shape)}, (found - 8) * spread


#: Other spellings in use: codes under the plain name, and both of them with short names for scales.
mxfp4_plain = partial(mxfp4, codes="X.weight")
mxfp4_short = partial(mxfp4, codes="X.weight", scale="X.scale", types=("I8", "F8_E8M0"))
fp8_short = partial(fp8, scale="X.scale", powers_only=True)


def republish(
    source: Path, target: Path, encoder: Callable[[str], Encoder | None], config: Mapping[str, Any] | None = None
) -> tuple[Path, Path]:
    """Two models made of a float32 one: in the first, the tensors that `encoder` has an encoder for are stored quantised;
    the second has what these stand for, in float32. `config` is added to the first's config.json."""
    checkpoint = open_checkpoint(source)
    quantised: dict[str, Stored] = {}
    plain: dict[str, Stored] = {}
    for name, tensor in checkpoint.tensors.items():
        values, encode = values_of(tensor), encoder(name)
        if encode is not None:
            stored, values = encode(values)
            quantised |= {_named(mark, name): value for mark, value in stored.items()}
        table = tensor.dtype == "i64"
        plain[name] = ("I64", values.astype(np.int64)) if table else ("F32", values.astype(np.float32))
        if encode is None:
            quantised[name] = plain[name]
    folders = target / "quantised", target / "plain"
    for folder, tensors, extra in zip(folders, (quantised, plain), (config or {}, {}), strict=True):
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps({**checkpoint.config, **extra}), encoding="utf-8")
        write_stored(folder / "model.safetensors", tensors)
    return folders


def write_stored(file: Path, tensors: Mapping[str, Stored]) -> Path:
    """A safetensors file of tensors of any type."""
    header, data = {}, bytearray()
    for name, (word, array) in tensors.items():
        raw = np.ascontiguousarray(array).tobytes() if word != "F32" else quantise("f32", array)
        header[name] = {"dtype": word, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return file


def _named(mark: str, name: str) -> str:
    """What stands for X.weight_scale beside the matrix `name`."""
    if mark.startswith("X.weight"):
        return name + mark.removeprefix("X.weight")
    return name.removesuffix(".weight") + mark.removeprefix("X")


def _largest(matrix: Values, rows: int, cols: int) -> Values:
    """The largest magnitude of every block of rows x cols, those at the end perhaps smaller."""
    *lead, height, width = matrix.shape
    down, across = math.ceil(height / rows), math.ceil(width / cols)
    padding = [(0, 0)] * len(lead) + [(0, down * rows - height), (0, across * cols - width)]
    blocks = np.pad(np.abs(matrix), padding).reshape(*lead, down, rows, across, cols)
    return np.asarray(blocks.max(axis=(-3, -1)))


def _spread(scales: NDArray[Any], rows: int, cols: int, matrix: Values) -> Values:
    """The scale of each value."""
    height, width = matrix.shape[-2:]
    spread = np.repeat(np.repeat(scales.astype(np.float64), rows, axis=-2), cols, axis=-1)
    return np.asarray(spread[..., :height, :width])
