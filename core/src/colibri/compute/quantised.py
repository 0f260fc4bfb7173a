"""Quantised tensors of published checkpoints: which tensors of a file together are one weight, and how they are read.

What a tensor is follows from the tensors beside it and their types, never from the configuration, which lists what a
repository's tools were asked to do rather than what they did. Every supported format is a row of FORMATS.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from ..errors import CheckpointError
from .checkpoint import BLOCKS, ZEROS, Checkpoint, Scales, Tensor

#: Types of scales: the file's word -> the storage type it is read as.
_FLOATS = {"f32": "f32", "bf16": "bf16", "f16": "f16"}
_POWERS = {"F8_E8M0": "e8m0", "U8": "e8m0"}
_EIGHTHS = {"F8_E4M3": "e4m3"}


#: Largest block of a matrix that is cut into blocks of a fixed size.
MAX_BLOCK = 256


class Format(Struct, frozen=True):
    """One way to store a quantised matrix. Names are as published, `X.weight` standing for the name asked for.

    Values are codes of storage type `dtype` times their scale, times every tensor of `times`, over every tensor of `over`.
    """

    name: str
    codes: str
    word: str
    dtype: str
    scales: str
    grid: Mapping[str, str]
    times: tuple[str, ...] = ()
    over: tuple[str, ...] = ()


FORMATS = (
    Format("FP8", "X.weight", "F8_E4M3", "e4m3", "X.weight_scale_inv", _FLOATS | _POWERS),
    Format("FP8", "X.weight", "F8_E4M3", "e4m3", "X.weight_scale", _FLOATS | _POWERS),  # MXFP8 with powers of two
    Format("FP8", "X.weight", "F8_E4M3", "e4m3", "X.scale", _FLOATS | _POWERS),
    Format("MXFP4", "X.weight", "I8", "e2m1", "X.scale", _POWERS),
    Format("MXFP4", "X.weight", "U8", "e2m1", "X.weight_scale", _POWERS),
    Format("MXFP4", "X.weight_packed", "U8", "e2m1", "X.weight_scale", _POWERS),
    Format("MXFP4", "X.weight_blocks", "U8", "e2m1", "X.weight_scales", _POWERS),
    Format("NVFP4", "X.weight_packed", "U8", "e2m1", "X.weight_scale", _EIGHTHS, over=("X.weight_global_scale",)),
    Format("NVFP4", "X.weight", "U8", "e2m1", "X.weight_scale", _EIGHTHS, times=("X.weight_scale_2",)),
    Format(
        "NVFP4", "X.weight", "U8", "e2m1", "X.weight_scale", _EIGHTHS,
        times=("X.weight_amax",), over=("X.weight_outer_scale_denominator",),
    ),
    Format("NVFP4", "X.weight", "nvfp4", "nvfp4", "X.scale", _FLOATS),
    Format("int8", "X.weight", "I8", "i8", "X.weight_scale", _FLOATS),
    Format("pack-quantized", "X.weight_packed", "I32", "u4", "X.weight_scale", _FLOATS),  # or u8
)  # fmt: skip

#: What only formats have that cannot be read.
FOREIGN = {
    "X.g_idx": "GPTQ",
    "X.qweight": "AWQ",
    "X.weight.absmax": "bitsandbytes (4 bits)",
    "X.SCB": "bitsandbytes (int8)",
    "X.biases": "MLX",
    "X.scales": "MLX",
    "X.weight_g_idx": "pack-quantized with activation order",
}


def find_tensor(checkpoint: Checkpoint, name: str) -> Tensor:
    """The tensor `name`: as the file has it, or, where the file stores it quantised, with its logical shape, its storage
    type and its scales.

    Raises CheckpointError if it is missing, if its parts do not fit together, and for formats that cannot be read.
    """
    return _find(checkpoint, name, 1)


def find_shards(checkpoint: Checkpoint, name: str, count: int) -> tuple[Tensor, ...]:
    """The tensor `name` as `count` runs of rows that were quantised one by one: blocks of scales end where a run does."""
    tensor = _find(checkpoint, name, count)
    if count < 1 or len(tensor.shape) != 2 or tensor.shape[0] % count:
        raise tensor.error(f"has shape {list(tensor.shape)}, {count} equal runs of rows are needed")
    rows = tensor.shape[0] // count
    shards = tuple(tensor.rows(i * rows, (i + 1) * rows) for i in range(count))
    scales = tensor.scales
    if scales is None or scales.grid.shape[0] == 1:
        return shards
    lines = scales.grid.shape[0] // count
    grids = (scales.grid.rows(i * lines, (i + 1) * lines) for i in range(count))
    return tuple(replace(shard, scales=replace(scales, grid=grid)) for shard, grid in zip(shards, grids, strict=True))


def _find(checkpoint: Checkpoint, name: str, shards: int) -> Tensor:
    tensors = checkpoint.tensors
    for mark, format_name in FOREIGN.items():
        found = tensors.get(beside(name, mark))
        if found is not None:
            raise found.error(f"is of a model in {format_name} format, which cannot be read; use another release of it")
    lacking: CheckpointError | None = None
    for row in FORMATS:
        codes, grid = tensors.get(beside(name, row.codes)), tensors.get(beside(name, row.scales))
        if codes is None or codes.dtype != row.word or grid is None or grid.dtype not in row.grid:
            continue
        missing = [mark for mark in row.times + row.over if beside(name, mark) not in tensors]
        if not missing:
            return _assembled(checkpoint, name, row, codes, grid, shards)
        reason = f"is stored in {row.name}, its {beside(name, missing[0])!r} is missing"
        lacking = lacking or codes.error(reason)
    if lacking is not None:
        raise lacking
    tensor = tensors.get(name)
    if tensor is not None and tensor.dtype in BLOCKS:
        return tensor
    for row in FORMATS:
        codes = tensors.get(beside(name, row.codes))
        if codes is not None and codes.dtype == row.word:
            wanted = {beside(name, r.scales): None for r in FORMATS if (r.codes, r.word) == (row.codes, row.word)}
            raise codes.error(
                f"is stored as {row.word}, and no scales of a type that fits it are there ({', '.join(wanted)})"
            )
    return checkpoint.tensor(name)


def beside(name: str, mark: str) -> str:
    """The name that a published name such as X.weight_scale has where `name` is X.weight."""
    if mark.startswith("X.weight"):
        return name + mark[len("X.weight") :]
    return name.removesuffix(".weight") + mark[1:]


def _assembled(checkpoint: Checkpoint, name: str, row: Format, codes: Tensor, grid: Tensor, shards: int) -> Tensor:
    shape, dtype, pitch = _logical(checkpoint, name, row, codes)
    if len(shape) not in (2, 3) or 0 in shape:
        raise codes.error(f"has shape {list(codes.shape)}, a matrix or several are needed")
    *lead, rows, cols = shape
    given = () if math.prod(grid.shape) == 1 else grid.shape
    padded = given + (1,) * (len(shape) - len(given))
    if len(padded) != len(shape) or 0 in padded or padded[:-2] not in (tuple(lead), (1,) * len(lead)):
        raise grid.error(f"has shape {list(grid.shape)}, which does not fit {list(shape)}")
    runs = shards if shards > 1 and padded[-2] > 1 else 1
    if rows % runs or padded[-2] % runs:
        raise grid.error(f"has shape {list(grid.shape)} for {rows} rows, {shards} equal runs of them are needed")
    block = (_block(grid, rows // runs, padded[-2] // runs), _block(grid, cols, padded[-1]))
    grid = replace(grid, dtype=row.grid[grid.dtype], shape=padded)
    factors = _factors(checkpoint, name, row, lead[0] if lead else 1)
    zero = {"u4": 8, "u8": 128}.get(dtype, 0)
    zeros = _zeros(checkpoint, name, dtype, shape, padded)
    if zeros is not None and runs > 1:
        raise zeros.error("holds zero points, which cannot be read for runs of rows")
    scales = Scales(
        grid, block, zeros=zeros, zero=zero,
        factor=factors[0], factors=factors if len(factors) > 1 else (),
    )  # fmt: skip
    return replace(codes, name=name, dtype=dtype, shape=shape, pitch=pitch, scales=scales)


def _logical(checkpoint: Checkpoint, name: str, row: Format, codes: Tensor) -> tuple[tuple[int, ...], str, int]:
    """Shape, storage type and pitch of the matrix that `codes` holds."""
    shape = codes.shape
    if row.codes == "X.weight_blocks":  # 16 bytes a block, in a dimension of their own
        if len(shape) < 3 or shape[-1] != 16:
            raise codes.error(f"has shape {list(shape)}, blocks of 16 bytes are needed")
        shape = (*shape[:-2], shape[-2] * 16)
    if row.dtype == "e2m1":
        shape = (*shape[:-1], 2 * shape[-1]) if shape else shape
    if row.dtype != "u4":
        return shape, row.dtype, 0
    table = checkpoint.tensor(name + "_shape")
    wanted = tuple(table.numbers(most=3))
    for dtype, bits in (("u4", 4), ("u8", 8)):
        *lead, cols = wanted if len(wanted) == len(shape) and len(wanted) > 1 else (0,)
        words = -(-int(cols) * bits // 32)
        if (*lead, words) == shape and cols % BLOCKS[dtype][0] == 0:
            block, size = BLOCKS[dtype]
            row_bytes = int(cols) // block * size
            return tuple(int(n) for n in wanted), dtype, 0 if 4 * words == row_bytes else 4 * words
    raise codes.error(f"has shape {list(shape)} for {list(wanted)} values; those of 4 or 8 bits can be read")


def _block(grid: Tensor, size: int, count: int) -> int:
    """How many of `size` rows or columns share one of `count` scales: a power of two that leaves the last block incomplete,
    as for 576 in blocks of 128, or else equal parts, such as two matrices in one."""
    if count == 1:
        return size
    power = 1 << (-(-size // count) - 1).bit_length()
    if power <= MAX_BLOCK and -(-size // power) == count:
        return power
    if size % count == 0:
        return size // count
    raise grid.error(f"has shape {list(grid.shape)}: {count} blocks do not divide {size} rows or columns")


def _factors(checkpoint: Checkpoint, name: str, row: Format, parts: int) -> tuple[float, ...]:
    """What scales are multiplied with: one number for all of `parts` matrices, or one for each."""
    found = [1.0]
    for mark in row.times + row.over:
        tensor = checkpoint.tensor(beside(name, mark))
        values = tensor.numbers(most=max(parts, 1))
        if len(values) not in (1, parts):
            raise tensor.error(f"holds {len(values)} numbers, 1 {f'or {parts} ' if parts > 1 else ''}are needed")
        if mark in row.over and 0 in values:
            raise tensor.error("is zero, scales cannot be divided by it")
        length = max(len(found), len(values))
        found, values = found * (length // len(found)), list(values) * (length // len(values))
        found = [a / b if mark in row.over else a * b for a, b in zip(found, values, strict=True)]
        if not all(abs(value) < 3e38 for value in found):
            raise tensor.error("makes scales that are out of range")
    return tuple(found)


def _zeros(checkpoint: Checkpoint, name: str, dtype: str, shape: tuple[int, ...], grid: tuple[int, ...]) -> Tensor | None:
    """The zeros of asymmetric codes: 32-bit words, each with those of several rows of the grid."""
    tensor = checkpoint.tensors.get(beside(name, "X.weight_zero_point"))
    if tensor is None:
        return None
    if dtype not in ZEROS:
        raise tensor.error(f"holds zero points, which cannot be read for values of type {dtype}")
    lines = ZEROS[dtype]
    needed = (*shape[:-2], -(-grid[-2] // lines), grid[-1])
    if tensor.dtype != "I32" or tensor.shape != needed:
        raise tensor.error(f"is {tensor.dtype} {list(tensor.shape)}, I32 {list(needed)} is needed")
    return replace(tensor, dtype=dtype, shape=(*needed[:-1], needed[-1] * lines))
