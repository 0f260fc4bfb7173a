"""The forward pass against transformers, natively and interpreted, whole and in every kind of pieces."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colibri.compute.checkpoint import Checkpoint, open_checkpoint
from colibri.compute.load import declare, load_runtime
from colibri.compute.runtime import Runtime
from colibri.errors import CheckpointError
from colibri.testing.checkpoints import seeded_weights, write_checkpoint, write_gguf
from colibri.testing.drive import greedy, logits_of, together
from colibri.testing.interpreter import InterpretedRuntime
from colibri_olmoe.checkpoint import OlmoeConfig, matches
from colibri_olmoe.graph import build_graph

DATA = Path(__file__).parent / "data"

#: The largest difference from the reference that a float32 computation may show; its logits spread over 3.
CLOSE = 2e-3


class Family:
    name = "olmoe"

    def graph(self, checkpoint: Checkpoint, g: Any) -> None:
        build_graph(checkpoint, g)


def reference(name: str) -> dict[str, np.ndarray]:
    with np.load(DATA / name / "reference.npz") as stored:
        return dict(stored)


def config_of(name: str) -> dict[str, Any]:
    return json.loads((DATA / name / "config.json").read_text())


def seeded() -> dict[str, np.ndarray]:
    recipe = json.loads((DATA / "shared" / "weights.json").read_text())
    return seeded_weights(recipe["shapes"], recipe["seed"])


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two models: that of tests/data itself, and `shared`, whose weights follow from a seed."""
    shared = write_checkpoint(tmp_path_factory.mktemp("shared"), config_of("shared"), seeded())
    return {".": DATA, "shared": shared}


def native(folder: Path, **options: Any) -> Runtime:
    return load_runtime(Family(), open_checkpoint(folder), **{"context": 128, "slots": 3, "max_rows": 64, **options})


def interpreted(folder: Path) -> Runtime:
    plan, tensors = declare(Family(), open_checkpoint(folder))
    return InterpretedRuntime(plan, tensors, context=128, slots=3, max_rows=64)


@pytest.fixture(scope="module")
def runtime() -> Runtime:
    return native(DATA)


@pytest.fixture(scope="module")
def whole(runtime: Runtime) -> np.ndarray:
    return logits_of(runtime, reference(".")["prompt_ids"].tolist())


@pytest.mark.parametrize("make", [native, interpreted])
@pytest.mark.parametrize("name", [".", "shared"])
def test_logits_and_greedy_tokens_are_those_of_transformers(
    folders: dict[str, Path], name: str, make: Callable[[Path], Runtime]
) -> None:
    expected = reference(name)
    made = make(folders[name])
    ids = expected["prompt_ids"].tolist()
    assert np.abs(logits_of(made, ids) - expected["logits_full"]).max() < CLOSE
    tokens = greedy(made, ids, 16, slot=1)
    assert tokens == expected["greedy_ids"].tolist()
    assert np.abs(logits_of(made, tokens, slot=0, start=len(ids))[:-1] - expected["greedy_logits"][1:]).max() < CLOSE


def test_token_by_token(runtime: Runtime, whole: np.ndarray) -> None:
    expected = reference(".")
    found = logits_of(runtime, expected["prompt_ids"].tolist(), slot=1, chunks=[1] * 45)
    assert np.abs(found - expected["logits_token"]).max() < CLOSE
    assert found.tobytes() == whole.tobytes()


def test_two_interleaved_slots(runtime: Runtime, whole: np.ndarray) -> None:
    expected = reference(".")
    prompts = {0: expected["prompt_ids"].tolist(), 2: expected["alt_ids"].tolist()}
    found = together(runtime, prompts)
    assert np.abs(found[2] - expected["alt_logits"]).max() < CLOSE
    assert found[0].tobytes() == whole.tobytes()
    assert found[2].tobytes() == logits_of(runtime, prompts[2]).tobytes()


@settings(max_examples=25)
@given(chunks=st.lists(st.integers(1, 20), max_size=12), other=st.integers(1, 20))
def test_any_chunks_beside_any_other_rows(runtime: Runtime, whole: np.ndarray, chunks: list[int], other: int) -> None:
    ids = reference(".")["prompt_ids"].tolist()
    assert logits_of(runtime, ids, slot=1, chunks=chunks).tobytes() == whole.tobytes()
    found = together(runtime, {0: ids[::-1], 1: ids}, {0: other, 1: chunks[0] if chunks else 40})
    assert found[1].tobytes() == whole.tobytes()


def test_a_copied_prefix_is_as_good_as_a_computed_one(runtime: Runtime) -> None:
    expected = reference(".")
    keep, other = int(expected["alt_keep"]), expected["alt_ids"].tolist()
    logits_of(runtime, expected["prompt_ids"].tolist(), slot=0)
    runtime.copy(0, 1, keep)
    found = logits_of(runtime, other[keep:], slot=1, start=keep)
    assert np.abs(found - expected["alt_logits"][keep:]).max() < CLOSE
    assert found.tobytes() == logits_of(runtime, other, slot=2)[keep:].tobytes()


def test_a_slot_forgets_what_comes_after_a_rewind(runtime: Runtime, whole: np.ndarray) -> None:
    ids = reference(".")["prompt_ids"].tolist()
    logits_of(runtime, ids[:20] + ids[:20], slot=0)
    assert logits_of(runtime, ids[20:], slot=0, start=20).tobytes() == whole[20:].tobytes()


def test_threads_and_code_paths_change_nothing(whole: np.ndarray) -> None:
    from colibri._native import isas

    ids = reference(".")["prompt_ids"].tolist()
    for isa in isas():
        for threads in (1, 2, 3):
            assert logits_of(native(DATA, threads=threads, isa=isa), ids).tobytes() == whole.tobytes()


METADATA = {
    "general.architecture": "olmoe",
    "olmoe.block_count": 2,
    "olmoe.context_length": 512,
    "olmoe.embedding_length": 64,
    "olmoe.feed_forward_length": 32,
    "olmoe.attention.head_count": 4,
    "olmoe.attention.head_count_kv": 2,
    "olmoe.attention.layer_norm_rms_epsilon": 1e-5,
    "olmoe.rope.freq_base": 500000.0,
    "olmoe.expert_count": 12,
    "olmoe.expert_used_count": 3,
    "olmoe.expert_weights_norm": True,
}
ATTENTION = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output", "q_norm": "attn_q_norm",
             "k_norm": "attn_k_norm"}  # fmt: skip


def gguf_arrays() -> dict[str, np.ndarray]:
    """The model `shared` by GGUF's names, the experts of a layer in one tensor."""
    weights = seeded()
    found = {"token_embd.weight": weights["model.embed_tokens.weight"], "output_norm.weight": weights["model.norm.weight"]}
    for i in range(2):
        theirs, ours = f"blk.{i}", f"model.layers.{i}"
        found[f"{theirs}.attn_norm.weight"] = weights[f"{ours}.input_layernorm.weight"]
        found[f"{theirs}.ffn_norm.weight"] = weights[f"{ours}.post_attention_layernorm.weight"]
        found[f"{theirs}.ffn_gate_inp.weight"] = weights[f"{ours}.mlp.gate.weight"]
        for name, their_name in ATTENTION.items():
            found[f"{theirs}.{their_name}.weight"] = weights[f"{ours}.self_attn.{name}.weight"]
        for name in ("gate", "up", "down"):
            experts = [weights[f"{ours}.mlp.experts.{e}.{name}_proj.weight"] for e in range(12)]
            found[f"{theirs}.ffn_{name}_exps.weight"] = np.stack(experts)
    return found


def test_gguf_is_the_same_model(folders: dict[str, Path], tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "x.gguf", METADATA, gguf_arrays())
    ids = reference("shared")["prompt_ids"].tolist()
    assert logits_of(native(file), ids).tobytes() == logits_of(native(folders["shared"]), ids).tobytes()


@pytest.mark.parametrize("dtype", ["bf16", "f16", "q8_0", "q4_0"])
def test_storage_types_against_the_interpreter_on_the_same_file(tmp_path: Path, dtype: str) -> None:
    file = write_gguf(tmp_path / "x.gguf", METADATA, gguf_arrays(), dtype=lambda name: "f32" if "_inp" in name else dtype)
    ids = reference("shared")["prompt_ids"].tolist()
    one, two = logits_of(native(file), ids), logits_of(interpreted(file), ids)
    if dtype in ("bf16", "f16"):
        assert np.abs(one - two).max() < CLOSE
    else:  # activations are rounded to 8 bits: close in the middle, though a router's near ties may fall the other way
        errors = np.linalg.norm(one - two, axis=1) / np.linalg.norm(two, axis=1)
        assert np.median(errors) < 0.03


def test_only_its_own_checkpoints_match(folders: dict[str, Path], tmp_path: Path) -> None:
    assert matches(open_checkpoint(DATA))
    assert matches(open_checkpoint(write_gguf(tmp_path / "x.gguf", METADATA, {})))
    assert not matches(open_checkpoint(write_gguf(tmp_path / "y.gguf", {"general.architecture": "other"}, {})))
    assert not matches(open_checkpoint(write_checkpoint(tmp_path / "z", {}, seeded_weights({"a": (2, 2)}, 1))))


def test_the_configuration() -> None:
    c = OlmoeConfig.of(open_checkpoint(DATA))
    assert (c.layers, c.heads, c.kv_heads, c.head_dim, c.experts, c.top_k) == (2, 4, 4, 16, 8, 2)
    assert (c.norm_topk, c.clip, c.vocab, c.eps, c.tied, c.context) == (False, 2.0, 256, 1e-5, False, 4096)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", 0),
        ("hidden_size", 66),
        ("hidden_size", "64"),
        ("hidden_size", None),
        ("num_hidden_layers", -1),
        ("num_hidden_layers", 1 << 40),
        ("num_hidden_layers", 2.0),
        ("num_attention_heads", 3),
        ("num_attention_heads", True),
        ("num_key_value_heads", 3),
        ("num_experts", 0),
        ("num_experts_per_tok", 9),
        ("num_experts_per_tok", 0),
        ("norm_topk_prob", "yes"),
        ("clip_qkv", -1.0),
        ("clip_qkv", float("nan")),
        ("vocab_size", None),
        ("rms_norm_eps", float("inf")),
        ("rms_norm_eps", "small"),
        ("hidden_act", "gelu"),
        ("attention_bias", True),
        ("max_position_embeddings", 0),
        ("tie_word_embeddings", 1),
        ("rope_parameters", {"rope_type": "spiral", "rope_theta": 1.0}),
        ("rope_parameters", {"rope_theta": 0}),
        ("rope_parameters", []),
    ],
)
def test_a_bad_value_is_named(tmp_path: Path, key: str, value: object) -> None:
    write_checkpoint(tmp_path, {**config_of("."), key: value}, {})
    with pytest.raises(CheckpointError) as caught:
        OlmoeConfig.of(open_checkpoint(tmp_path))
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'config.json'}: ")
    named = "num_attention_heads" if (key, value) == ("hidden_size", 66) else key
    assert named.removesuffix("_parameters") in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"num_hidden_layers": 3}, "tensor 'model.layers.2.input_layernorm.weight': is missing"),
        ({"vocab_size": 300}, "tensor 'model.embed_tokens.weight': weight: has shape [256, 64], 300 rows are needed"),
        ({"num_experts": 9}, "tensor 'model.layers.0.mlp.experts.8.gate_proj.weight': is missing"),
        ({"num_experts": 7}, "tensor 'model.layers.0.mlp.gate.weight': moe: scores 8 experts, there are 7"),
        ({"num_key_value_heads": 2}, "attention: gives 64 values a row, 32 are needed"),
    ],
)
def test_a_configuration_that_does_not_fit_the_weights(edit: dict[str, int], message: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**config_of("."), **edit}))
    (tmp_path / "model.safetensors").symlink_to(DATA / "model.safetensors")
    with pytest.raises(CheckpointError) as caught:
        native(tmp_path)
    assert message in str(caught.value)
