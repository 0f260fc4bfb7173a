"""Heads beside models: written with them, and stored with what another implementation makes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colibri.compute.checkpoint import open_checkpoint
from colibri.testing.checkpoints import seeded_weights, write_checkpoint
from colibri.testing.heads import head_of, layer_shapes, store_head, write_with_head
from colibri.testing.storage import values_of

#: More than a float64 can tell from its neighbours.
MULTIPLIER = (1 << 62) + 1
SHAPES = {"mtp.0.up": [4, 2], "mtp.0.norm": [2]}
LOGITS = np.arange(12.0).reshape(3, 4)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    arrays = {"layers.1.up": np.ones((4, 2)), "layers.10.up": np.ones((3, 2)), "table": np.array([MULTIPLIER])}
    config = {"text_config": {"size": 2}}
    dtypes = {"layers.1.up": "bf16", "layers.10.up": "f32", "table": "i64"}
    folder = write_checkpoint(tmp_path / "model", config, arrays, dtype=lambda name: dtypes[name])
    np.savez(folder / "reference.npz", prompt_ids=np.array([1, 2, 3]), logits_full=LOGITS)
    return folder


def other(folder: Path, ids: Any) -> tuple[Any, Any, Any]:
    """Another implementation: the head's first matrix is what it makes of rows that count the tokens."""
    hidden = np.outer(ids[:-1], [1.0, 1.0])
    return LOGITS, hidden, hidden @ values_of(open_checkpoint(folder).tensor("mtp.0.up")).T


def test_what_another_implementation_makes_is_stored_with_the_recipe_of_the_head(model: Path) -> None:
    store_head(model, SHAPES, other, seed=3)
    assert head_of(model) == {"seed": 3, "shapes": SHAPES}
    with np.load(model / "draft.npz") as stored:
        assert stored["draft_hidden"].tolist() == [[1, 1], [2, 2]]
        up = seeded_weights(SHAPES, 3)["mtp.0.up"]
        assert np.array_equal(stored["draft_logits"], stored["draft_hidden"] @ up.T)


def test_other_logits_of_the_model_than_the_stored_ones_are_refused(model: Path) -> None:
    with pytest.raises(ValueError, match=r"logits are 1\.0e\+00 from the stored ones"):
        store_head(model, SHAPES, lambda folder, ids: (LOGITS + 1, LOGITS, LOGITS))
    assert not (model / "draft.json").exists()


def test_a_model_is_written_with_its_head_as_it_is(model: Path, tmp_path: Path) -> None:
    store_head(model, SHAPES, other)
    checkpoint = open_checkpoint(write_with_head(model, tmp_path / "both", size=3))
    assert {name: tensor.dtype for name, tensor in checkpoint.tensors.items()} == {
        "layers.1.up": "bf16",
        "layers.10.up": "f32",
        "table": "i64",
        **dict.fromkeys(SHAPES, "f32"),
    }
    assert checkpoint.numbers("table") == [MULTIPLIER]
    assert checkpoint.config == {"text_config": {"size": 3}}
    assert json.loads((model / "config.json").read_text()) == {"text_config": {"size": 2}}
    other_head = open_checkpoint(write_with_head(model, tmp_path / "other", {"mtp.0.norm": np.zeros(2)}))
    assert {name for name in other_head.tensors if name.startswith("mtp.")} == {"mtp.0.norm"}


def test_the_shapes_of_a_layer_are_those_of_that_layer_alone(model: Path) -> None:
    assert layer_shapes(model, "layers.1", "mtp.0") == {"mtp.0.up": [4, 2]}
