"""The forward passes against transformers 5.24, which made the models of tests/data with random weights and ran them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import Struct
from msgspec.structs import replace

import colibri_inkling
from colibri.compute.checkpoint import open_checkpoint
from colibri.compute.load import declare, load_runtime
from colibri.errors import CheckpointError
from colibri.testing.checkpoints import write_checkpoint
from colibri.testing.compute import ComputeConformance
from colibri.testing.drive import logits_of
from colibri.testing.floats import E2M1, E4M3, nearest
from colibri.testing.interpreter import InterpretedRuntime
from colibri.testing.storage import values_of
from colibri_inkling import Inkling

DATA = Path(__file__).parent / "data"
NAMES = ("inkling", "inkling2", "inkling2_loop")

#: Layers that run three times amplify what float32 rounds off.
CLOSE = {"inkling": 2e-3, "inkling2": 2e-3, "inkling2_loop": 2e-2}

Arrays = dict[str, np.ndarray]


class TestInkling(ComputeConformance):
    plugin = colibri_inkling
    family = "inkling"
    models = {name: DATA / name for name in NAMES}
    close = CLOSE


def config_of(name: str) -> dict[str, Any]:
    return json.loads((DATA / name / "config.json").read_text())


def arrays_of(name: str) -> Arrays:
    return {tensor.name: values_of(tensor) for tensor in open_checkpoint(DATA / name).tensors.values()}


def folder_with(folder: Path, name: str, edit: dict[str, Any]) -> Path:
    """The model `name` with another configuration."""
    config = config_of(name)
    config.get("text_config", config).update(edit)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").symlink_to(DATA / name / "model.safetensors")
    return folder


class Stored(Struct):
    """How a release stores a tensor: arrays by name, their storage types where they are not f32, and what they stand for."""

    arrays: Arrays
    types: dict[str, str]
    values: np.ndarray


def most_of(values: np.ndarray, size: int) -> np.ndarray:
    """The largest of every `size` values of a row."""
    return np.abs(values.reshape(*values.shape[:-1], -1, size)).max(-1)


def in_mxfp8(name: str, values: np.ndarray) -> Stored:
    """As Inkling-2 is released: e4m3, with a power of two for every 32 values."""
    exponents = np.ceil(np.log2(most_of(values, 32) / 448))
    scales = (2.0**exponents).repeat(32, -1)
    codes = E4M3[nearest(values / scales, E4M3)]
    arrays = {name: codes, f"{name}_scale": exponents + 127}
    return Stored(arrays, {name: "e4m3", f"{name}_scale": "u8"}, codes * scales)


def in_nvfp4(name: str, values: np.ndarray, factors: np.ndarray, companions: Arrays) -> Stored:
    """As e2m1, with an e4m3 scale for every 16 values and a factor for each expert."""
    spread = factors[:, None, None]
    scales = E4M3[nearest(most_of(values, 16) / 6 / spread, E4M3)]
    whole = (scales * spread).repeat(16, -1)
    codes = nearest(values / whole, E2M1)
    arrays = {name: codes[..., 0::2] | codes[..., 1::2] << 4, f"{name}_scale": scales, **companions}
    return Stored(arrays, {name: "u8", f"{name}_scale": "e4m3"}, E2M1[codes] * whole)


def in_modelopt(name: str, values: np.ndarray) -> Stored:
    """As Inkling is released in NVFP4: one factor for all experts."""
    factor = np.float32(np.abs(values).max() / (6 * 448))
    return in_nvfp4(name, values, np.full(len(values), factor, float), {f"{name}_scale_2": np.array([factor])})


def in_amax(name: str, values: np.ndarray) -> Stored:
    """As Inkling-2-Mini is released: the factor of an expert is its largest value, over one number for all."""
    most = np.abs(values).max((1, 2)).astype(np.float32).astype(float)
    companions = {f"{name}_amax": most, f"{name}_outer_scale_denominator": np.array([6 * 448.0])}
    return in_nvfp4(name, values, most / (6 * 448), companions)


@pytest.mark.parametrize(
    ("name", "form", "dtype"),
    [
        ("inkling", in_modelopt, "e2m1"),
        ("inkling2", in_mxfp8, "e4m3"),
        ("inkling2_loop", in_amax, "e2m1"),
        ("inkling2_loop", in_mxfp8, "e4m3"),
    ],
)
def test_a_released_model_with_quantised_experts(
    name: str, form: Callable[[str, np.ndarray], Stored], dtype: str, tmp_path: Path
) -> None:
    arrays: Arrays = {}
    plain: Arrays = {}
    types: dict[str, str] = {}
    for key, values in arrays_of(name).items():
        stored = form(key, values) if ".experts.w" in key else Stored({key: values}, {}, values)
        arrays |= stored.arrays
        types |= stored.types
        plain[key] = stored.values
        assert np.linalg.norm(stored.values - values) <= 0.15 * np.linalg.norm(values)
    released = open_checkpoint(
        write_checkpoint(tmp_path / "released", config_of(name), arrays, dtype=lambda key: types.get(key, "f32"))
    )
    decoded = open_checkpoint(write_checkpoint(tmp_path / "plain", config_of(name), plain))
    plan, tensors = declare(Inkling(), released)
    for bank in plan.banks:
        assert {tensors[plan.weights[i].name].dtype for i in (*bank.gate, *bank.up, *bank.down)} == {dtype}
    with np.load(DATA / name / "reference.npz") as reference:
        ids = reference["prompt_ids"].tolist()
    found = logits_of(load_runtime(Inkling(), released, context=64), ids)
    expected = logits_of(InterpretedRuntime(*declare(Inkling(), decoded), context=64), ids)
    assert np.abs(found - expected).max() < CLOSE[name]


@pytest.mark.parametrize("name", NAMES)
def test_a_model_stored_in_bf16(name: str, tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_checkpoint(tmp_path, config_of(name), arrays_of(name), dtype="bf16"))
    with np.load(DATA / name / "reference.npz") as reference:
        ids = reference["prompt_ids"].tolist()
    found = logits_of(load_runtime(Inkling(), checkpoint, context=64), ids)
    expected = logits_of(InterpretedRuntime(*declare(Inkling(), checkpoint), context=64), ids)
    assert np.abs(found - expected).max() < CLOSE[name]


@pytest.mark.parametrize("name", NAMES)
def test_the_text_part_alone_is_the_same_model(name: str, tmp_path: Path) -> None:
    config = config_of(name)
    nested = name == "inkling"
    text = config["text_config"] if nested else {"model_type": name, "text_config": config}
    arrays = {key: values for key, values in arrays_of(name).items() if key.startswith("model.llm.")}
    other = open_checkpoint(write_checkpoint(tmp_path, text, arrays))
    whole = open_checkpoint(DATA / name)
    assert Inkling().variant_for(other).name == Inkling().variant_for(whole).name  # type: ignore
    deaf = replace(whole, config={**whole.config, "audio_config": None})
    assert declare(Inkling(), other)[0] == declare(Inkling(), deaf)[0]


def test_towers_and_drafting_layers_are_left_alone() -> None:
    names = [weight.name for weight in declare(Inkling(), open_checkpoint(DATA / "inkling"))[0].weights]
    assert names
    assert all(name.startswith(("model.llm.", "model.audio.")) for name in names)


def test_padding_of_the_vocabulary_has_no_logits() -> None:
    for name in NAMES:
        assert declare(Inkling(), open_checkpoint(DATA / name))[0].vocab == 250


def test_looped_layers_have_a_memory_for_each_pass() -> None:
    plan, _ = declare(Inkling(), open_checkpoint(DATA / "inkling2_loop"))
    attentions = [node for node in plan.nodes if node.op == "attention"]
    assert len(attentions) == 3 + 2 * 3  # layers 1 and 2 of five run three times
    assert len({node.states for node in attentions}) == len(attentions)
    assert len({node.weights for node in attentions}) == 5


@pytest.mark.parametrize(
    ("name", "edit", "message"),
    [
        ("inkling", {"num_hidden_layers": 5}, "tensor 'model.llm.layers.4.attn_norm.weight': is missing"),
        ("inkling", {"vocab_size": 300}, "llm.embed.weight': weight: has shape [256, 64], 300 rows are needed"),
        ("inkling", {"dense_mlp_idx": 0}, "tensor 'model.llm.layers.0.mlp.gate.weight': is missing"),
        ("inkling", {"num_attention_heads": 6}, "attn.wq_du.weight': weight: has shape [64, 64], 96 rows are needed"),
        ("inkling", {"swa_num_key_value_heads": 1}, "attention: gives 32 values a row, 16 are needed"),
        ("inkling", {"rel_extent": 24}, "layers.1.attn.rel_logits_proj.proj': has shape [4, 16], [4, 24] is needed"),
        ("inkling", {"sliding_window_size": 16}, "layers.0.attn.rel_logits_proj.proj': has shape [4, 8], [4, 16] is needed"),
        ("inkling", {"d_rel": 8, "rel_extent": 8, "sliding_window_size": 4}, "attention: is for 8 values a head"),
        ("inkling", {"sconv_kernel_size": 3}, "sconv.weight': has shape [32, 1, 4], [32, 3] is needed"),
        ("inkling", {"n_routed_experts": 7}, "experts.w13_weight': has shape [8, 64, 64], [7, 2 * inner, width] is needed"),
        ("inkling", {"n_shared_experts": 1}, "gate"),
        ("inkling2", {"num_attention_heads": 2}, "l2_clip.scale': has shape [4, 16], [32] is needed"),
        ("inkling2", {"layer_types": ["hybrid_sliding"] * 5}, "attn_queries.0': has shape [3, 64], [1, 64] is needed"),
        ("inkling2", {"layer_types": ["hybrid"] * 5}, "tensor 'model.llm.layers.0.q_input_norm.weight': is missing"),
        ("inkling2_loop", {"loop_layer_index_end": 4}, "cross_pass_queries': has shape [4, 64], [6, width] is needed"),
    ],
)
def test_a_configuration_that_does_not_fit_the_weights(
    name: str, edit: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError) as caught:
        declare(Inkling(), open_checkpoint(folder_with(tmp_path, name, edit)))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
