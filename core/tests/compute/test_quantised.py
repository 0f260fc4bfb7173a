"""The matrices of data/quant.* are in the formats of published checkpoints; their values are not of our own decoding (see
make_quant.py)."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from numpy.typing import NDArray

from colibri.compute import gguf, safetensors
from colibri.compute.checkpoint import BLOCKS, Checkpoint, Tensor
from colibri.compute.native import NativeRuntime
from colibri.compute.plan import Node, Plan, Weight
from colibri.compute.quantised import FORMATS, Format, find_shards, find_tensor
from colibri.compute.runtime import Row
from colibri.errors import CheckpointError
from colibri.testing.quantised import Stored, store, write_stored
from colibri.testing.storage import quantise, values_of

DATA = Path(__file__).parent / "data"
EXPECTED: Mapping[str, NDArray[np.float32]] = np.load(DATA / "quant.npz")
FILES = [
    Checkpoint(DATA, "safetensors", {}, {}, safetensors.read_header(DATA / "quant.safetensors")),
    Checkpoint(DATA, "gguf", {}, {}, gguf.read_header(DATA / "quant.gguf")[1]),
]
GGUF = list(FILES[1].tensors)

#: The error of int8 activations, which some types are multiplied with.
COARSE = {"q8_0", "q4_0", "q5_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k"}


def published(name: str) -> Tensor:
    return find_tensor(FILES[name in GGUF], name)


def close(found: NDArray[Any], expected: NDArray[Any], error: float = 1e-6) -> bool:
    return bool(np.abs(found - expected).max() <= error * np.abs(expected).max())


@pytest.mark.parametrize("name", EXPECTED)
def test_a_published_matrix_has_its_values(name: str) -> None:
    tensor = published(name)
    assert tensor.name == name
    assert tensor.shape == EXPECTED[name].shape
    assert close(values_of(tensor), EXPECTED[name])


def matrices() -> list[str]:
    return [name for name in EXPECTED if EXPECTED[name].ndim == 2]


def logits(nodes: list[Node], weights: dict[str, Tensor], rows: int, cols: int) -> NDArray[np.float64]:
    """The logits of every token of a plan that embeds `rows` tokens as `cols` values."""
    named = tuple(Weight(name, tensor.shape) for name, tensor in weights.items())
    plan = Plan(rows, rows, (cols, rows), tuple(nodes), named, (), (), 1)
    runtime = NativeRuntime.load(plan, weights, context=rows, max_rows=rows)
    runtime.step([Row(token, 0, token, logits=True) for token in range(rows)])
    return np.stack([np.frombuffer(runtime.logits(i), np.float32) for i in range(rows)]).astype(np.float64)


@pytest.mark.parametrize("name", matrices())
def test_the_native_runtime_reads_it_alike(name: str, tmp_path: Path) -> None:
    """As a table of rows, and as the matrix of a product."""
    tensor, expected = published(name), EXPECTED[name].astype(np.float64)
    rows, cols = expected.shape
    other = np.random.default_rng(3).standard_normal((rows, cols)).astype(np.float32)
    (tmp_path / "other").write_bytes(quantise("f32", other))
    plain = Tensor("other", "f32", (rows, cols), tmp_path / "other", 0, other.nbytes)
    for table, matrix, wanted in ((tensor, plain, expected @ other.T), (plain, tensor, other @ expected.T)):
        nodes = [Node("embed", (), 0, (0,)), Node("linear", (0,), 1, (1,))]
        found = logits(nodes, {"table": table, "matrix": matrix}, rows, cols)
        assert close(found, wanted, 1e-2 if matrix is tensor and tensor.dtype in COARSE else 1e-5)


@pytest.mark.parametrize(
    ("which", "change", "reason"),
    [
        ("grid", {"shape": (39, 5)}, r"are \[39, 5\], \[40, 5\] are needed"),
        ("grid", {"shape": (40, 4)}, r"are \[40, 4\], \[40, 5\] are needed"),
        ("grid", {"dtype": "i8"}, "are stored as i8 for values of type u4"),
        ("grid", {"dtype": "q4_0"}, "are stored as q4_0 for values of type u4"),
        ("grid", {"offset": 1 << 40}, "the file has"),
        ("zeros", {"shape": (4, 40)}, r"are \[4, 40\], \[5, 40\] are needed"),
        ("zeros", {"shape": (5, 39)}, r"are \[5, 39\], \[5, 40\] are needed"),
        ("zeros", {"dtype": "u8"}, "are stored as u8 for values of type u4"),
    ],
)
def test_scales_that_do_not_cover_a_matrix_are_not_loaded(which: str, change: dict[str, Any], reason: str) -> None:
    tensor = published("int4_packed_zeros.weight")
    scales = tensor.scales
    assert scales is not None
    broken = replace(tensor, scales=replace(scales, **{which: replace(getattr(scales, which), **change)}))
    with pytest.raises(CheckpointError, match=reason):
        logits([Node("embed", (), 0, (0,)), Node("linear", (0,), 1, (0,))], {"w": broken}, *tensor.shape)


@pytest.mark.parametrize("name", matrices())
@pytest.mark.parametrize(("start", "stop", "every"), [(0, 2, 1), (1, 3, 1), (0, 3, 2), (7, 39, 3), (33, 40, 1)])
def test_rows_keep_their_scales(name: str, start: int, stop: int, every: int) -> None:
    tensor, expected = published(name), EXPECTED[name]
    if stop > len(expected):
        with pytest.raises(CheckpointError, match="there are no rows"):
            tensor.rows(start, stop, every)
        return
    rows = tensor.rows(start, stop, every)
    assert close(values_of(rows), expected[start:stop:every])
    if len(rows.shape) > 1 and rows.shape[0] > 1:
        assert close(values_of(rows.rows(1, rows.shape[0])), expected[start:stop:every][1:])


@pytest.mark.parametrize("name", [name for name in EXPECTED if EXPECTED[name].ndim == 3])
def test_parts_keep_their_scales(name: str) -> None:
    for index, expected in enumerate(EXPECTED[name]):
        part = published(name).part(index)
        assert close(values_of(part), expected)
        assert close(values_of(part.rows(1, 40, 2)), expected[1::2])


def test_a_row_of_a_matrix_with_scales_is_no_part() -> None:
    with pytest.raises(CheckpointError, match="there is no part 0"):
        published("mxfp4.weight").part(0)


# Files that are made for a test

Described = Mapping[str, tuple[str, tuple[int, ...]] | tuple[str, tuple[int, ...], bytes]]
BYTES = {
    "F32": 4,
    "BF16": 2,
    "F16": 2,
    "F8_E4M3": 1,
    "F8_E8M0": 1,
    "F8_E5M2": 1,
    "U8": 1,
    "I8": 1,
    "I32": 4,
    "I64": 8,
    "U32": 4,
}


def checkpoint(folder: Path, tensors: Described) -> Checkpoint:
    """Tensors by name: the file's word, the shape, and the bytes if they matter."""
    stored = {
        name: Stored(word, shape, data[0] if data else b"\1" * (math.prod(shape) * BYTES[word]))
        for name, (word, shape, *data) in tensors.items()
    }
    file = write_stored(folder / "model.safetensors", stored)
    return Checkpoint(folder, "safetensors", {}, {}, safetensors.read_header(file))


def floats(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def longs(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}q", *values)


ROWS = [(row, scale) for row in FORMATS if row.dtype != "nvfp4" for scale in row.grid]


@pytest.mark.parametrize(("row", "scale"), ROWS, ids=lambda it: it if isinstance(it, str) else f"{it.codes}, {it.scales}")
@pytest.mark.parametrize("shape", [(40, 64), (3, 12, 32)])
def test_what_is_stored_is_found(tmp_path: Path, row: Format, scale: str, shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(1).uniform(-1, 1, shape)
    block = (1, 32) if row.dtype in ("e2m1", "u4") else (32, 32) if row.dtype == "e4m3" else (1, shape[-1])
    write_stored(tmp_path / "x.safetensors", store("a.weight", values, row, block, scale))
    found = Checkpoint(tmp_path, "safetensors", {}, {}, safetensors.read_header(tmp_path / "x.safetensors"))
    error = {"e4m3": 0.07, "e2m1": 0.5, "u4": 0.08, "i8": 0.005}[row.dtype]
    assert np.abs(values_of(find_tensor(found, "a.weight")) - values).max() < error


def test_a_plain_tensor_is_what_it_is(tmp_path: Path) -> None:
    """Whatever stands beside it, and whatever a configuration may say."""
    found = checkpoint(tmp_path, {"a.weight": ("BF16", (4, 8)), "a.weight_scale": ("F32", (4, 1)), "a.scale": ("F32", (1,))})
    assert find_tensor(found, "a.weight") == found.tensor("a.weight")
    with pytest.raises(CheckpointError, match=r"tensor 'b\.weight': is missing"):
        find_tensor(found, "b.weight")


def test_one_scale_serves_several_matrices(tmp_path: Path) -> None:
    codes = quantise("e4m3", np.arange(1, 17).reshape(2, 2, 4).astype(np.float64))
    found = checkpoint(tmp_path, {"w": ("F8_E4M3", (2, 2, 4), codes), "w_scale": ("F32", (), floats(0.5))})
    tensor = find_tensor(found, "w")
    assert (values_of(tensor) == np.arange(1, 17).reshape(2, 2, 4) / 2).all()
    assert (values_of(tensor.part(1)) == np.arange(9, 17).reshape(2, 4) / 2).all()


def test_a_scale_for_each_half_of_the_rows(tmp_path: Path) -> None:
    codes = quantise("e4m3", np.ones((1, 1200, 2)))
    found = checkpoint(tmp_path, {"w": ("F8_E4M3", (1, 1200, 2), codes), "w_scale": ("F32", (1, 2), floats(2, 3))})
    tensor = find_tensor(found, "w").part(0)
    assert values_of(tensor)[[0, 599, 600, 1199], 0].tolist() == [2, 2, 3, 3]


@pytest.mark.parametrize(
    ("size", "count", "block"),
    [
        (256, 2, 128),
        (257, 3, 128),
        (576, 5, 128),
        (192, 2, 128),
        (192, 6, 32),
        (40, 1, 40),
        (40, 40, 1),
        (288, 3, 128),
        (480, 5, 96),
    ],
)
def test_the_size_of_a_block_follows_from_how_many_there_are(tmp_path: Path, size: int, count: int, block: int) -> None:
    tensors: Described = {"a.weight": ("F8_E4M3", (size, 8)), "a.weight_scale_inv": ("F32", (count, 1))}
    scales = find_tensor(checkpoint(tmp_path, tensors), "a.weight").scales
    assert scales is not None
    assert scales.block == (block, 8)


def test_shards_have_blocks_of_their_own(tmp_path: Path) -> None:
    """Two runs of 160 rows, each in a block of 128 and one of 32: four blocks, where the whole would have three."""
    codes = quantise("e4m3", np.ones((320, 4)))
    tensors: Described = {
        "a.weight": ("F8_E4M3", (320, 4), codes),
        "a.weight_scale_inv": ("F32", (4, 1), floats(1, 2, 3, 4)),
    }
    found = checkpoint(tmp_path, tensors)
    first, second = find_shards(found, "a.weight", 2)
    assert values_of(first)[[0, 127, 128, 159], 0].tolist() == [1, 1, 2, 2]
    assert values_of(second)[[0, 127, 128, 159], 0].tolist() == [3, 3, 4, 4]
    assert values_of(second.rows(126, 130))[:, 0].tolist() == [3, 3, 4, 4]
    with pytest.raises(CheckpointError, match=r"a.weight': has shape \[320, 4\], 0 equal runs of rows are needed"):
        find_shards(found, "a.weight", 0)
    for count in (3, 5, 8):
        with pytest.raises(CheckpointError, match=rf"scale_inv': has shape \[4, 1\] for 320 rows, {count} equal runs"):
            find_shards(found, "a.weight", count)


def test_shards_of_a_plain_matrix_are_its_rows(tmp_path: Path) -> None:
    found = checkpoint(tmp_path, {"a": ("F32", (4, 2), floats(*range(8)))})
    assert [values_of(shard).tolist() for shard in find_shards(found, "a", 2)] == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]


FP8 = {"a.weight": ("F8_E4M3", (4, 8))}
FP4 = {"a.weight": ("U8", (4, 16)), "a.weight_scale": ("F8_E4M3", (4, 2))}
PACKED = {"a.weight_packed": ("I32", (4, 4)), "a.weight_scale": ("BF16", (4, 1))}
SHAPE = {"a.weight_shape": ("I64", (2,), longs(4, 32))}


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        (FP8, r"'a\.weight': is stored as F8_E4M3, and no scales .* \(a\.weight_scale_inv, a\.weight_scale, a\.scale\)"),
        (FP8 | {"a.weight_scale": ("I32", (4, 1))}, r"'a\.weight': is stored as F8_E4M3, and no scales of a type that fits"),
        (FP8 | {"a.weight_scale": ("F32", (3, 1))}, r"'a\.weight_scale': has shape \[3, 1\]: 3 blocks do not divide 4"),
        (FP8 | {"a.weight_scale": ("F32", (5, 1))}, r"'a\.weight_scale': has shape \[5, 1\]: 5 blocks do not divide 4"),
        (FP8 | {"a.weight_scale": ("F32", (4, 9))}, r"'a\.weight_scale': .*9 blocks do not divide 8"),
        (FP8 | {"a.weight_scale": ("F32", (2, 4, 1))}, r"'a\.weight_scale': .* does not fit \[4, 8\]"),
        (FP8 | {"a.weight_scale": ("F32", (0, 1))}, r"'a\.weight_scale': .* does not fit \[4, 8\]"),
        ({"a.weight": ("F8_E4M3", (8,)), "a.scale": ("F32", ())}, r"'a\.weight': has shape \[8\], a matrix"),
        ({"a.weight": ("F8_E4M3", ()), "a.scale": ("F32", ())}, r"'a\.weight': has shape \[\], a matrix"),
        ({"a.weight": ("F8_E4M3", (0, 8)), "a.scale": ("F32", ())}, r"'a\.weight': has shape \[0, 8\], a matrix"),
        ({"w": ("F8_E4M3", (2, 4, 8)), "w_scale": ("F32", (3, 4, 1))}, r"'w_scale': .* does not fit \[2, 4, 8\]"),
        (FP4, r"'a\.weight': is stored in NVFP4, its 'a\.weight_scale_2' is missing"),
        (FP4 | {"a.weight_scale_2": ("F32", (), floats(math.nan))}, r"'a\.weight_scale_2': holds a value that is infinite"),
        (FP4 | {"a.weight_scale_2": ("F32", (2,))}, r"'a\.weight_scale_2': holds 2 numbers, at most 1"),
        (FP4 | {"a.weight_scale_2": ("F8_E4M3", (1,))}, r"'a\.weight_scale_2': is stored as F8_E4M3, plain numbers"),
        (FP4 | {"a.weight_scale_2": ("F32", (0,))}, r"'a\.weight_scale_2': holds 0 numbers, 1 are needed"),
        (
            {"a.weight_packed": ("U8", (4, 16)), "a.weight_scale": ("F8_E4M3", (4, 2)),
             "a.weight_global_scale": ("F32", (1,), floats(0))},
            r"'a\.weight_global_scale': is zero",
        ),
        (
            {"a.weight_packed": ("U8", (4, 16)), "a.weight_scale": ("F8_E4M3", (4, 2)),
             "a.weight_global_scale": ("F32", (1,), floats(1e-45))},
            r"'a\.weight_global_scale': makes scales that are out of range",
        ),
        (PACKED, r"'a\.weight_shape': is missing"),
        (PACKED | {"a.weight_shape": ("I64", (2,), longs(4, 40))}, r"'a\.weight_packed': has shape \[4, 4\] for \[4, 40"),
        (PACKED | {"a.weight_shape": ("I64", (2,), longs(3, 32))}, r"'a\.weight_packed': has shape \[4, 4\] for \[3, 32\]"),
        (PACKED | {"a.weight_shape": ("I64", (2,), longs(4, -32))}, r"'a\.weight_packed': has shape \[4, 4\] for \[4, -3"),
        (PACKED | {"a.weight_shape": ("I64", (1,), longs(4))}, r"'a\.weight_packed': has shape \[4, 4\] for \[4\]"),
        (PACKED | {"a.weight_shape": ("I64", (9,))}, r"'a\.weight_shape': holds 9 numbers, at most 3"),
        (PACKED | {"a.weight_shape": ("F32", (2,), floats(4, 32.5))}, r"'a\.weight_packed': has shape \[4, 4\] for"),
        (PACKED | SHAPE | {"a.weight_zero_point": ("I32", (4, 1))}, r"_zero_point': is I32 \[4, 1\], I32 \[1, 1\]"),
        (PACKED | SHAPE | {"a.weight_zero_point": ("I8", (1, 1))}, r"'a\.weight_zero_point': is I8 \[1, 1\], I32 \[1, 1\]"),
        (FP8 | {"a.weight_scale": ("F32", (4, 1)), "a.weight_zero_point": ("I8", (4, 1))}, "zero_point': .* e4m3"),
        (PACKED | SHAPE | {"a.weight_g_idx": ("I32", (32,))}, "'a.weight_g_idx': .* pack-quantized with activation order"),
        ({"a.weight_blocks": ("U8", (4, 2, 8)), "a.weight_scales": ("U8", (4, 2))}, r"_blocks': has shape \[4, 2, 8\]"),
        ({"a.qweight": ("I32", (1, 8)), "a.g_idx": ("I32", (8,))}, r"'a\.g_idx': is of a model in GPTQ format"),
        ({"a.qweight": ("I32", (8, 1)), "a.qzeros": ("I32", (1, 1))}, r"'a\.qweight': is of a model in AWQ format"),
        ({"a.weight": ("U8", (16, 1)), "a.weight.absmax": ("F32", (1,))}, "bitsandbytes"),
        ({"a.weight": ("I8", (4, 8)), "a.SCB": ("F32", (4,))}, "bitsandbytes"),
        ({"a.weight": ("U32", (4, 1)), "a.scales": ("F16", (4, 1)), "a.biases": ("F16", (4, 1))}, "MLX"),
        ({"a.weight": ("U8", (4, 8))}, r"'a\.weight': is stored as U8, and no scales"),
        ({"a.weight": ("I8", (4, 8))}, r"'a\.weight': is stored as I8, and no scales"),
    ],
)  # fmt: skip
def test_what_does_not_fit_together_is_refused(tmp_path: Path, tensors: Described, reason: str) -> None:
    found = checkpoint(tmp_path, tensors)
    with pytest.raises(CheckpointError, match=reason) as caught:
        find_tensor(found, next(iter(tensors)).split("_")[0].replace(".qweight", ".weight").replace(".absmax", ""))
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_columns_that_end_within_a_word(tmp_path: Path) -> None:
    codes = np.arange(12) % 16
    words = [sum(int(code) << 4 * j for j, code in enumerate(codes[at : at + 8])) for at in (0, 8)]
    found = checkpoint(
        tmp_path,
        {
            "a.weight_packed": ("I32", (3, 2), struct.pack("<6I", *words * 3)),
            "a.weight_scale": ("F32", (3, 1), floats(1, 2, 3)),
            "a.weight_shape": ("I64", (2,), longs(3, 12)),
        },
    )
    tensor = find_tensor(found, "a.weight")
    assert (values_of(tensor) == (codes - 8) * np.array([[1], [2], [3]])).all()
    assert (values_of(tensor.rows(1, 3)) == (codes - 8) * np.array([[2], [3]])).all()


words = st.sampled_from(sorted(BYTES))
shapes = st.lists(st.integers(0, 9), max_size=4).map(tuple)
names = st.sampled_from(
    ["a.weight", "a.weight_packed", "a.weight_scale", "a.weight_scale_inv", "a.scale", "a.weight_scale_2", "a.weight_shape",
     "a.weight_zero_point", "a.weight_blocks", "a.weight_scales", "a.weight_global_scale", "a.weight_amax"]
)  # fmt: skip


@given(tensors=st.dictionaries(names, st.tuples(words, shapes), min_size=1))
def test_any_tensors_are_one_weight_or_refused(tmp_path_factory: pytest.TempPathFactory, tensors: Described) -> None:
    folder = tmp_path_factory.getbasetemp() / "any-tensors"
    folder.mkdir(exist_ok=True)
    found = checkpoint(folder, tensors)
    tensor, reason = None, ""
    try:
        tensor = find_tensor(found, "a.weight")
    except CheckpointError as error:
        reason = str(error)
    assert "\n" not in reason
    if tensor is not None and tensor.scales is not None:
        size = tensor.file.stat().st_size
        for part in (tensor, tensor.scales.grid, tensor.scales.zeros):
            if part is not None:
                block, size_of_block = BLOCKS[part.dtype]
                assert part.offset + part.nbytes <= size
                assert part.pitch or math.prod(part.shape) // block * size_of_block == part.nbytes
        assert values_of(tensor).shape == tensor.shape
