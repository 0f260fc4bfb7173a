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
from msgspec.structs import replace

from colibri.compute.checkpoint import Checkpoint, open_checkpoint
from colibri.compute.gguf_names import gguf_name
from colibri.compute.load import declare, load_runtime
from colibri.compute.runtime import Runtime
from colibri.errors import CheckpointError
from colibri.testing.checkpoints import seeded_weights, write_checkpoint, write_gguf
from colibri.testing.drive import greedy, logits_of, together
from colibri.testing.interpreter import InterpretedRuntime
from colibri_qwen.checkpoint import QwenConfig
from colibri_qwen.graph import build_graph

DATA = Path(__file__).parent / "data"
CASES = ("tied", "untied", "window", "yarn")

#: The largest difference from the reference that a float32 computation may show; its logits spread over 1.
CLOSE = 5e-4


class Family:
    name = "qwen"

    def graph(self, checkpoint: Checkpoint, g: Any) -> None:
        build_graph(checkpoint, g)


def reference(name: str) -> dict[str, np.ndarray]:
    with np.load(DATA / name / "reference.npz") as stored:
        return dict(stored)


def config_of(name: str) -> dict[str, Any]:
    return json.loads((DATA / name / "config.json").read_text())


def weights_of(name: str) -> dict[str, np.ndarray]:
    recipe = json.loads((DATA / name / "weights.json").read_text())
    return seeded_weights(recipe["shapes"], recipe["seed"])


def gguf_metadata(config: dict[str, Any]) -> dict[str, Any]:
    return {
        "general.architecture": "qwen2",
        "qwen2.block_count": config["num_hidden_layers"],
        "qwen2.context_length": config["max_position_embeddings"],
        "qwen2.embedding_length": config["hidden_size"],
        "qwen2.feed_forward_length": config["intermediate_size"],
        "qwen2.attention.head_count": config["num_attention_heads"],
        "qwen2.attention.head_count_kv": config["num_key_value_heads"],
        "qwen2.attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "qwen2.rope.freq_base": config["rope_theta"],
    }


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A model by the name of its case, written in a storage type and format."""
    made: dict[tuple[str, str, str, int], Path] = {}

    def write(name: str, dtype: str = "f32", format: str = "safetensors", shards: int = 1) -> Path:
        key = (name, dtype, format, shards)
        if key not in made:
            folder = tmp_path_factory.mktemp(name)
            config, weights = config_of(name), weights_of(name)
            if format == "safetensors":
                made[key] = write_checkpoint(folder, config, weights, dtype=dtype, shards=shards)
            else:
                renamed = {gguf_name(name, {})[0]: array for name, array in weights.items()}
                made[key] = write_gguf(folder / "model.gguf", gguf_metadata(config), renamed, dtype=dtype)
        return made[key]

    return write


def native(path: Path, **options: Any) -> Runtime:
    return load_runtime(Family(), open_checkpoint(path), **{"context": 128, "slots": 3, "max_rows": 64, **options})


def interpreted(path: Path, **options: Any) -> Runtime:
    plan, tensors = declare(Family(), open_checkpoint(path))
    return InterpretedRuntime(plan, tensors, **{"context": 128, "slots": 3, "max_rows": 64, **options})


@pytest.mark.parametrize("make", [native, interpreted])
@pytest.mark.parametrize("name", CASES)
def test_logits_and_greedy_tokens_are_those_of_transformers(
    model: Callable[..., Path], name: str, make: Callable[[Path], Runtime]
) -> None:
    expected = reference(name)
    made = make(model(name))
    ids = expected["prompt_ids"].tolist()
    assert np.abs(logits_of(made, ids) - expected["logits_full"]).max() < CLOSE
    tokens = greedy(made, ids, 16, slot=1)
    assert tokens == expected["greedy_ids"].tolist()
    assert np.abs(logits_of(made, tokens, slot=0, start=len(ids))[:-1] - expected["greedy_logits"][1:]).max() < CLOSE


@pytest.mark.parametrize(
    ("dtype", "format", "shards"),
    [
        ("bf16", "safetensors", 1),
        ("f16", "safetensors", 1),
        ("f32", "safetensors", 3),
        ("f32", "gguf", 1),
        ("bf16", "gguf", 1),
    ],
)
@pytest.mark.parametrize("name", ["tied", "untied"])
def test_every_exact_storage_type_and_format_is_the_same_model(
    model: Callable[..., Path], name: str, dtype: str, format: str, shards: int
) -> None:
    expected = reference(name)
    made = native(model(name, dtype, format, shards))
    ids = expected["prompt_ids"].tolist()
    assert np.abs(logits_of(made, ids) - expected["logits_full"]).max() < CLOSE
    assert greedy(made, ids, 16) == expected["greedy_ids"].tolist()


def relative(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


@pytest.mark.parametrize("dtype", ["q8_0", "q4_0", "q5_0"])
@pytest.mark.parametrize("name", ["tied", "untied"])
def test_block_types_against_the_interpreter_on_the_same_file(model: Callable[..., Path], name: str, dtype: str) -> None:
    path = model(name, dtype, "gguf")
    ids = reference(name)["prompt_ids"].tolist()
    expected = logits_of(interpreted(path), ids)
    assert relative(logits_of(native(path), ids), expected) < 0.03  # activations are rounded to 8 bits
    # Guards the comparison itself: the file's own rounding is far larger for 4 bits, so a mix-up would be seen.
    assert relative(logits_of(interpreted(model(name)), ids), expected) > (0.003 if dtype == "q8_0" else 0.05)


WIDE = {
    "model_type": "qwen2", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 160, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "max_position_embeddings": 256,
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["q4_k", "q6_k"])
def test_wide_block_types_against_the_interpreter_on_the_same_file(tmp_path: Path, dtype: str) -> None:
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (160, 256), "output_norm.weight": (256,)}
    for i in range(2):
        shapes |= {f"blk.{i}.{n}.weight": (256,) for n in ("attn_norm", "ffn_norm")}
        shapes |= {
            f"blk.{i}.attn_{n}.weight": (size, 256) for n, size in (("q", 256), ("k", 128), ("v", 128), ("output", 256))
        }
        shapes |= {f"blk.{i}.attn_{n}.bias": (size,) for n, size in (("q", 256), ("k", 128), ("v", 128))}
        shapes |= {f"blk.{i}.ffn_{n}.weight": (512, 256) for n in ("gate", "up")} | {f"blk.{i}.ffn_down.weight": (256, 512)}
    file = write_gguf(tmp_path / "wide.gguf", gguf_metadata(WIDE), seeded_weights(shapes, 5), dtype=dtype)
    ids = np.random.default_rng(1).integers(0, 160, 40).tolist()
    whole = logits_of(native(file), ids)
    assert relative(whole, logits_of(interpreted(file), ids)) < 0.03  # activations are rounded to 8 bits
    assert logits_of(native(file, threads=1), ids, chunks=[1] * 9 + [13]).tobytes() == whole.tobytes()


def test_the_file_does_not_limit_the_window_it_does_not_use(model: Callable[..., Path], tmp_path: Path) -> None:
    ids = reference("window")["prompt_ids"].tolist()
    config = {**config_of("window"), "use_sliding_window": False}
    unlimited = native(write_checkpoint(tmp_path, config, weights_of("window")))
    limited = native(model("window"))
    one, two = logits_of(unlimited, ids), logits_of(limited, ids)
    assert one[:9].tobytes() == two[:9].tobytes()  # nothing lies beyond the window of 9 yet
    assert np.abs(one[9:] - two[9:]).max() > 0.01


@pytest.fixture(scope="module", params=["f32", "q8_0"])
def runtime(request: pytest.FixtureRequest, model: Callable[..., Path]) -> Runtime:
    return native(model("tied", request.param, "gguf"))


@pytest.fixture(scope="module")
def ids() -> list[int]:
    return reference("tied")["prompt_ids"].tolist()


@pytest.fixture(scope="module")
def whole(runtime: Runtime, ids: list[int]) -> np.ndarray:
    return logits_of(runtime, ids)


def test_token_by_token_and_two_interleaved_slots(runtime: Runtime, whole: np.ndarray, ids: list[int]) -> None:
    assert logits_of(runtime, ids, slot=1, chunks=[1] * len(ids)).tobytes() == whole.tobytes()
    found = together(runtime, {2: ids, 0: ids[::-1]})
    assert found[2].tobytes() == whole.tobytes()
    assert found[0].tobytes() == logits_of(runtime, ids[::-1]).tobytes()


@settings(max_examples=25)
@given(chunks=st.lists(st.integers(1, 20), max_size=12), other=st.integers(1, 20))
def test_any_chunks_beside_any_other_rows(
    runtime: Runtime, whole: np.ndarray, ids: list[int], chunks: list[int], other: int
) -> None:
    assert logits_of(runtime, ids, slot=1, chunks=chunks).tobytes() == whole.tobytes()
    found = together(runtime, {0: ids[::-1], 1: ids}, {0: other, 1: chunks[0] if chunks else 40})
    assert found[1].tobytes() == whole.tobytes()


def test_a_copied_prefix_is_as_good_as_a_computed_one(runtime: Runtime, whole: np.ndarray, ids: list[int]) -> None:
    logits_of(runtime, ids[:30] + ids[::-1], slot=0)
    runtime.copy(0, 1, 30)
    assert logits_of(runtime, ids[30:], slot=1, start=30).tobytes() == whole[30:].tobytes()


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "q8_0", "q4_0", "q5_0"])
def test_threads_and_code_paths_change_nothing(model: Callable[..., Path], ids: list[int], dtype: str) -> None:
    from colibri._native import isas

    path = model("tied", dtype, "gguf")
    found = {logits_of(native(path, threads=threads, isa=isa), ids).tobytes() for isa in isas() for threads in (1, 2, 3)}
    assert len(found) == 1


def test_the_configuration_is_the_same_from_both_formats(model: Callable[..., Path]) -> None:
    c = QwenConfig.of(open_checkpoint(model("tied")))
    assert (c.layers, c.heads, c.kv_heads, c.head_dim, c.vocab, c.tied, c.context) == (3, 4, 2, 16, 256, True, 512)
    assert c.windows == (0, 0, 0)
    other = QwenConfig.of(open_checkpoint(model("tied", "f32", "gguf")))
    assert other == QwenConfig.of(open_checkpoint(model("tied", "q4_0", "gguf")))
    assert other.eps == pytest.approx(c.eps)
    assert replace(other, eps=c.eps) == c
    assert QwenConfig.of(open_checkpoint(model("window"))).windows == (0, 9, 9)


def test_the_newer_words_for_rope_and_windows(tmp_path: Path) -> None:
    kinds = ["sliding_attention", "full_attention", "sliding_attention"]
    config = config_of("window")
    del config["rope_theta"], config["max_window_layers"]
    config |= {"layer_types": kinds, "rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"}}
    c = QwenConfig.of(open_checkpoint(write_checkpoint(tmp_path / "new", config, {})))
    assert c.windows == (9, 0, 9)
    assert c.rope == QwenConfig.of(open_checkpoint(write_checkpoint(tmp_path / "old", config_of("window"), {}))).rope


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", 66),
        ("num_hidden_layers", 0),
        ("num_hidden_layers", [3]),
        ("num_attention_heads", -4),
        ("num_key_value_heads", 3),
        ("head_dim", 1 << 40),
        ("vocab_size", "many"),
        ("rms_norm_eps", 0),
        ("rope_theta", float("nan")),
        ("rope_scaling", {"type": "dynamic", "factor": 2.0}),
        ("rope_scaling", {"type": "yarn"}),
        ("rope_scaling", 4),
        ("hidden_act", "relu"),
        ("tie_word_embeddings", "no"),
        ("use_sliding_window", 1),
        ("max_position_embeddings", 1.5),
    ],
)
def test_a_bad_value_is_named(tmp_path: Path, key: str, value: object) -> None:
    write_checkpoint(tmp_path, {**config_of("tied"), key: value}, {})
    with pytest.raises(CheckpointError) as caught:
        QwenConfig.of(open_checkpoint(tmp_path))
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'config.json'}: ")
    assert key in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("key", "value"),
    [("block_count", 0), ("attention.head_count", "4"), ("attention.head_count_kv", 3), ("embedding_length", 66),
     ("attention.layer_norm_rms_epsilon", -1.0), ("rope.freq_base", 0.0), ("rope.scaling.type", "spiral"),
     ("rope.dimension_count", 17)],
)  # fmt: skip
def test_a_bad_value_of_a_gguf_file_is_named(tmp_path: Path, key: str, value: object) -> None:
    weights = {"token_embd.weight": weights_of("tied")["model.embed_tokens.weight"]}
    file = write_gguf(tmp_path / "x.gguf", {**gguf_metadata(config_of("tied")), f"qwen2.{key}": value}, weights)
    with pytest.raises(CheckpointError) as caught:
        QwenConfig.of(open_checkpoint(file))
    assert str(caught.value).startswith(f"{file}: qwen2.")
    assert key in str(caught.value).replace("qwen2.rope rotates", "rope.dimension_count")


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"num_hidden_layers": 4}, "tensor 'model.layers.3.input_layernorm.weight': is missing"),
        ({"vocab_size": 300}, "tensor 'model.embed_tokens.weight': weight: has shape [256, 64], 300 rows are needed"),
        ({"tie_word_embeddings": False}, "tensor 'lm_head.weight': is missing"),
        ({"num_key_value_heads": 4}, "attention: gives 32 values a row, 64 are needed"),
        ({"head_dim": 12}, "attention"),
    ],
)
def test_a_configuration_that_does_not_fit_the_weights(tmp_path: Path, edit: dict[str, object], message: str) -> None:
    write_checkpoint(tmp_path, {**config_of("tied"), **edit}, weights_of("tied"))
    with pytest.raises(CheckpointError) as caught:
        native(tmp_path)
    assert message in str(caught.value).replace("rope", "attention")
