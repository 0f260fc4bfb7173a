"""The forward pass: right, the same in every kind of pieces, and refused where a file does not fit its configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from colibri.compute.checkpoint import Checkpoint, open_checkpoint
from colibri.compute.load import declare
from colibri.errors import CheckpointError
from colibri.testing.checkpoints import seeded_weights, write_checkpoint
from colibri.testing.compute import ComputeConformance
from colibri.testing.drive import greedy, logits_of
from colibri.testing.interpreter import InterpretedRuntime

import colibri_heron
from colibri_heron.variants import CHAT

#: Models with a reference, by name. The `seeded` one is written when the tests begin, and its reference is what the
#: interpreter makes of it; others lie in tests/data, with a reference from the model's own implementation.
MODELS: dict[str, Path] = {"seeded": Path()}

FAMILY = colibri_heron.Heron()

CONFIG = {
    "model_type": "heron",
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 96,
    "max_position_embeddings": 256,
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-6,
}
LAYER = {
    "input_layernorm": (32,),
    "self_attn.q_proj": (32, 32),
    "self_attn.k_proj": (16, 32),
    "self_attn.v_proj": (16, 32),
    "self_attn.o_proj": (32, 32),
    "post_attention_layernorm": (32,),
    "mlp.gate_proj": (48, 32),
    "mlp.up_proj": (48, 32),
    "mlp.down_proj": (32, 48),
}
WHOLE = {"model.embed_tokens": (96, 32), "model.norm": (32,), "lm_head": (96, 32)}


def seeded(folder: Path, *, seed: int = 1, **changes: Any) -> Checkpoint:
    """A small model; with `changes`, one whose configuration says something else."""
    config = {**CONFIG, **changes}
    shapes: dict[str, tuple[int, ...]] = {f"{name}.weight": shape for name, shape in WHOLE.items()}
    for i in range(2):
        shapes |= {f"model.layers.{i}.{name}.weight": shape for name, shape in LAYER.items()}
    return open_checkpoint(write_checkpoint(folder, config, seeded_weights(shapes, seed)))


@pytest.fixture(scope="module", autouse=True)
def _models(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = MODELS["seeded"] = tmp_path_factory.mktemp("models") / "seeded"
    plan, tensors = declare(FAMILY, seeded(folder))
    made = InterpretedRuntime(plan, tensors, context=256, slots=1, max_rows=64)
    prompt = [(7 * i * i + 3) % 96 for i in range(45)]
    other = [*prompt[:28], *((5 * i + 1) % 96 for i in range(14))]
    tokens = greedy(made, prompt, 8)
    arrays = {
        "prompt_ids": np.array(prompt),
        "logits_full": logits_of(made, prompt),
        "greedy_ids": np.array(tokens),
        "greedy_logits": logits_of(made, prompt + tokens[:-1])[len(prompt) - 1 :],
        "alt_ids": np.array(other),
        "alt_keep": np.array(28),
        "alt_logits": logits_of(made, other),
    }
    np.savez(folder / "reference.npz", allow_pickle=False, **arrays)


class TestHeron(ComputeConformance):
    plugin: ClassVar[Any] = colibri_heron
    family = "heron"
    models = MODELS


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"num_hidden_layers": None}, "num_hidden_layers is missing"),
        ({"num_key_value_heads": 3}, "num_key_value_heads is 3, which does not divide num_attention_heads, 4"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu', this family computes silu"),
        ({"rms_norm_eps": -1}, "rms_norm_eps must be a positive number, not -1"),
        ({"vocab_size": 95}, "has shape [96, 32], 95 rows are needed"),
        ({"num_attention_heads": 2}, "gives 16 values a row, 32 are needed"),
        ({"num_hidden_layers": 3}, "model.layers.2.input_layernorm.weight"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_in_words(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        declare(FAMILY, seeded(tmp_path / "model", **changes))
    assert reason in str(caught.value)


def test_checkpoints_of_others_are_left_alone(tmp_path: Path) -> None:
    assert FAMILY.variant_for(seeded(tmp_path / "ours")) == CHAT
    assert FAMILY.variant_for(seeded(tmp_path / "theirs", model_type="another")) is None
