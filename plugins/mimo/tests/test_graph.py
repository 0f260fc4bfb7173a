"""The forward pass against transformers, whose own names mimo_v2_flash has and published files' mimo_v2."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import colibri_mimo
from colibri.compute.checkpoint import open_checkpoint
from colibri.compute.load import declare, load_runtime
from colibri.errors import CheckpointError
from colibri.testing.compute import ComputeConformance
from colibri.testing.drive import logits_of
from colibri.testing.interpreter import InterpretedRuntime
from colibri.testing.published import Encoder, fp8, fp8_shards, mxfp4_plain, republish
from colibri_mimo import Mimo

DATA = Path(__file__).parent / "data"


class TestMimo(ComputeConformance):
    plugin = colibri_mimo
    family = "mimo"
    models = {name: DATA / name for name in ("mimo_v2", "mimo_v2_flash")}


def edited(folder: Path, name: str, edit: dict[str, Any]) -> Path:
    """A model with another configuration."""
    config = json.loads((DATA / name / "config.json").read_text())
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**config, **edit}))
    (folder / "model.safetensors").symlink_to(DATA / name / "model.safetensors")
    return folder


def test_windowed_layers_keep_only_their_window() -> None:
    plan, _ = declare(Mimo(), open_checkpoint(DATA / "mimo_v2"))
    full, windowed = ((24, 24, 16, 16), 0), ((24,) * 4 + (16,) * 4, 8)
    assert [(state.planes, state.window) for state in plan.states] == [full, windowed, windowed, full, windowed]


def as_published(name: str, shards: int = 2, block: int = 32) -> Encoder | None:
    """8-bit floats before and 4-bit floats within experts; o_proj, routers and the like stay as they are."""
    if ".qkv_proj." in name:
        return partial(fp8_shards, shards=shards, block=block)
    if ".experts." in name:
        return mxfp4_plain
    return partial(fp8, block=block) if re.search(r"(mlp\.\w+|[qkv])_proj\.weight", name) else None


@pytest.mark.parametrize("name", ["mimo_v2", "mimo_v2_flash"])
def test_quantised_weights_are_computed_with_as_what_they_stand_for(name: str, tmp_path: Path) -> None:
    """In layers without a window a shard of q, k and v has 88 rows, so that its last block of scales is cut off."""
    quantised, plain = republish(DATA / name, tmp_path, as_published, {"quantization_config": {"quant_method": "fp8"}})
    ids = list(range(4, 240, 7))
    plan, tensors = declare(Mimo(), open_checkpoint(plain))
    expected = logits_of(InterpretedRuntime(plan, tensors, context=64), ids)
    plan, tensors = declare(Mimo(), open_checkpoint(quantised))
    assert np.abs(logits_of(InterpretedRuntime(plan, tensors, context=64), ids) - expected).max() < 1e-5
    found = logits_of(load_runtime(Mimo(), open_checkpoint(quantised), context=64), ids)
    assert np.abs(found - expected).max() < 2e-3


def test_scales_made_for_another_number_of_shards_are_refused(tmp_path: Path) -> None:
    quantised, _ = republish(DATA / "mimo_v2", tmp_path, partial(as_published, shards=1, block=64))
    with pytest.raises(CheckpointError, match=r"tensor 'model.layers.0.self_attn.qkv_proj.weight_scale_inv'"):
        declare(Mimo(), open_checkpoint(quantised))


@pytest.mark.parametrize("name", ["mimo_v2", "mimo_v2_flash"])
def test_what_is_beside_the_language_model_is_left_alone(name: str, tmp_path: Path) -> None:
    def with_more(tensor: str) -> Encoder | None:
        if not tensor.endswith("lm_head.weight"):
            return None
        return lambda x: ({"X.weight": ("F32", x), "X_mtp.layers.0.weight": ("F32", x[:3])}, x)

    more, plain = republish(DATA / name, tmp_path, with_more, {"vision_config": {"depth": 1}, "num_nextn_predict_layers": 3})
    assert len(open_checkpoint(more).tensors) == len(open_checkpoint(plain).tensors) + 1
    assert len({declare(Mimo(), open_checkpoint(folder))[0].hash() for folder in (more, plain)}) == 1


@pytest.mark.parametrize(
    ("name", "edit", "message"),
    [
        ("mimo_v2", {"vocab_size": 300}, "weight: has shape [256, 64], 300 rows are needed"),
        ("mimo_v2", {"n_routed_experts": 7}, "layers.1.mlp.gate.weight': weight: has shape [8, 64], 7 rows are needed"),
        ("mimo_v2", {"n_routed_experts": 9}, "layers.1.mlp"),
        ("mimo_v2", {"num_attention_heads": 8}, "has 88 rows, 2 such shards do not hold 8 and 2 heads"),
        ("mimo_v2", {"num_key_value_heads": 4}, "has 44 rows, 4 such shards do not hold 4 and 4 heads"),
        ("mimo_v2", {"swa_num_key_value_heads": 1}, "has 128 rows, 2 such shards do not hold 4 and 1 heads"),
        ("mimo_v2", {"head_dim": 32}, "has 88 rows, 2 such shards do not hold 4 and 2 heads"),
        ("mimo_v2", {"add_full_attention_sink_bias": True}, "layers.0.self_attn.attention_sink_bias': is missing"),
        ("mimo_v2", {"moe_layer_freq": [1] * 5}, "layers.0.mlp.gate.weight': is missing"),
        (
            "mimo_v2_flash",
            {"num_attention_heads": 8},
            "layers.0.self_attn.q_proj.weight': weight: has shape [96, 64], 192 rows are needed",
        ),
        (
            "mimo_v2_flash",
            {"num_key_value_heads": 4},
            "num_key_value_heads is 8, which does not divide num_attention_heads, 4",
        ),
        ("mimo_v2_flash", {"num_key_value_heads": 1}, "attention: gives 48 values a row, 24 are needed"),
        ("mimo_v2_flash", {"v_head_dim": 8}, "attention: gives 32 values a row, 16 are needed"),
    ],
)
def test_a_configuration_that_does_not_fit_the_weights(
    name: str, edit: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError) as caught:
        declare(Mimo(), open_checkpoint(edited(tmp_path, name, edit)))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
