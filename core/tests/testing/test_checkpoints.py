from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from colibri.compute.checkpoint import open_checkpoint
from colibri.testing.checkpoints import seeded_weights, write_checkpoint, write_gguf
from colibri.testing.storage import dequantise

SHAPES = {"m.weight": (32, 64), "norm.weight": (64,), "q.bias": (64,)}


def test_weights_follow_from_seed_and_name_alone() -> None:
    one = seeded_weights(SHAPES, 1)
    assert (one["m.weight"] == seeded_weights({"m.weight": (32, 64)}, 1)["m.weight"]).all()
    assert (one["m.weight"] != seeded_weights(SHAPES, 2)["m.weight"]).any()
    assert one["m.weight"][0, :4].tolist() == [0.205078125, 0.02734375, -0.248046875, -0.21484375]  # on every machine
    assert 0.7 < one["m.weight"].std() * 8 / 1.5 < 1.5
    assert np.abs(one["q.bias"]).max() <= 0.5
    assert np.abs(one["norm.weight"] - 1).max() <= 0.25


@pytest.mark.parametrize("format", ["safetensors", "gguf"])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_every_exact_type_holds_the_same_values(tmp_path: Path, dtype: str, format: str) -> None:
    weights = seeded_weights(SHAPES, 1)
    if format == "gguf":
        path = write_gguf(tmp_path / "x.gguf", {}, weights, dtype=dtype)
    else:
        path = write_checkpoint(tmp_path, {}, weights, dtype=dtype, shards=2)
    for name, tensor in open_checkpoint(path).tensors.items():
        data = tensor.file.read_bytes()[tensor.offset : tensor.offset + tensor.nbytes]
        assert (dequantise(tensor.dtype, data, tensor.shape) == weights[name]).all()


def test_a_type_for_each_tensor(tmp_path: Path) -> None:
    weights = seeded_weights({"a": (2, 64), "b": (2, 64)}, 1)
    file = write_gguf(tmp_path / "x.gguf", {}, weights, dtype=lambda name: {"a": "q8_0", "b": "q4_0"}[name])
    assert [tensor.dtype for tensor in open_checkpoint(file).tensors.values()] == ["q8_0", "q4_0"]
