"""What is written in the formats of published models is read as the values it was said to stand for."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from colibri.compute.checkpoint import open_checkpoint
from colibri.compute.quantised import find_shards, find_tensor
from colibri.testing.checkpoints import seeded_weights, write_checkpoint
from colibri.testing.published import (
    Encoder,
    fp8,
    fp8_shards,
    fp8_short,
    int4,
    mxfp4,
    mxfp4_plain,
    mxfp4_short,
    republish,
)
from colibri.testing.storage import values_of

#: By format, how far its values may be from those they are made of, as a part of the largest.
FORMATS: dict[str, tuple[Encoder, float]] = {
    "fp8": (fp8, 0.04),
    "fp8 in small blocks": (partial(fp8, block=16), 0.04),
    "fp8 with short names": (fp8_short, 0.04),
    "mxfp4": (mxfp4, 0.26),
    "mxfp4 with plain names": (mxfp4_plain, 0.26),
    "mxfp4 with short names": (mxfp4_short, 0.26),
    "int4": (int4, 0.08),
    "int4 in groups of 64": (partial(int4, group=64), 0.08),
}
SHAPES = {"a.weight": (40, 64), "a.norm": (64,)}


def source(folder: Path, shapes: dict[str, tuple[int, ...]]) -> Path:
    return write_checkpoint(folder / "source", {"model_type": "x"}, seeded_weights(shapes, 1))


@pytest.mark.parametrize("name", FORMATS)
def test_a_matrix_is_read_as_what_it_stands_for(name: str, tmp_path: Path) -> None:
    encode, error = FORMATS[name]
    folder = source(tmp_path, SHAPES)
    quantised, plain = republish(folder, tmp_path, lambda name: encode if name == "a.weight" else None, {"extra": 1})
    found = values_of(find_tensor(open_checkpoint(quantised), "a.weight"))
    meant = values_of(open_checkpoint(plain).tensor("a.weight"))
    original = values_of(open_checkpoint(folder).tensor("a.weight"))
    assert np.allclose(found, meant, rtol=1e-6, atol=0)
    assert 0 < np.abs(found - original).max() <= error * np.abs(original).max()
    assert (
        values_of(open_checkpoint(quantised).tensor("a.norm")) == values_of(open_checkpoint(folder).tensor("a.norm"))
    ).all()
    assert open_checkpoint(quantised).config == {"model_type": "x", "extra": 1}
    assert open_checkpoint(plain).config == {"model_type": "x"}


@pytest.mark.parametrize("encode", [fp8, mxfp4])
def test_several_matrices_lie_in_one_tensor(encode: Encoder, tmp_path: Path) -> None:
    quantised, plain = republish(source(tmp_path, {"a": (3, 40, 64)}), tmp_path, lambda name: encode)
    found = values_of(find_tensor(open_checkpoint(quantised), "a"))
    assert np.allclose(found, values_of(open_checkpoint(plain).tensor("a")), rtol=1e-6, atol=0)


def test_shards_have_scales_of_their_own(tmp_path: Path) -> None:
    encode = partial(fp8_shards, shards=2, block=16)
    quantised, plain = republish(source(tmp_path, {"a.weight": (80, 64)}), tmp_path, lambda name: encode)
    shards = find_shards(open_checkpoint(quantised), "a.weight", 2)
    found = np.concatenate([values_of(shard) for shard in shards])
    assert np.allclose(found, values_of(open_checkpoint(plain).tensor("a.weight")), rtol=1e-6, atol=0)


@pytest.mark.parametrize("encode", [fp8, mxfp4, int4])
def test_zeros_stay_zeros(encode: Encoder) -> None:
    assert not encode(np.zeros((4, 64)))[1].any()
