from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colibri.compute.checkpoint import Checkpoint, open_checkpoint
from colibri.compute.config import Config
from colibri.compute.gguf_names import find_gguf, gguf_name, layers_of, limit_of, model_type
from colibri.compute.rope import rope_for
from colibri.errors import CheckpointError
from colibri.testing.checkpoints import write_gguf
from colibri.testing.storage import values_of


def checkpoint(folder: Path, metadata: dict[str, Any], arrays: dict[str, np.ndarray] | None = None) -> Checkpoint:
    facts = {"general.architecture": "heron", **{f"heron.{key}": value for key, value in metadata.items()}}
    return open_checkpoint(
        write_gguf(folder / "x.gguf", facts, arrays or {"token_embd.weight": np.zeros((7, 4), np.float32)})
    )


def config(folder: Path, metadata: dict[str, Any], **names: str) -> Config:
    return Config.of(checkpoint(folder, metadata), names)


def test_a_configuration_is_read_by_the_published_keys(tmp_path: Path) -> None:
    c = config(tmp_path, {"block_count": 3, "attention.head_count": 2, "own": 5}, mine="own")
    assert (c.size("num_hidden_layers"), c.size("num_attention_heads"), c.size("vocab_size"), c.size("mine")) == (3, 2, 7, 5)
    assert c.flag("tie_word_embeddings", False)
    assert c.get("hidden_size") is None


def test_errors_name_the_key_that_the_file_has(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"x\.gguf: heron\.attention\.head_count must be a whole number"):
        config(tmp_path, {"attention.head_count": -1}).size("num_attention_heads")
    with pytest.raises(CheckpointError, match=r"heron\.block_count is missing"):
        config(tmp_path, {}).size("num_hidden_layers")


def test_layers_that_only_draft_are_not_counted(tmp_path: Path) -> None:
    c = config(tmp_path, {"block_count": 4, "nextn_predict_layers": 1, "flags": [True, False, True, False]}, flags="flags")
    assert c.size("num_hidden_layers") == 3
    assert layers_of(c, "flags", bool, 3) == [True, False, True]
    with pytest.raises(CheckpointError, match=r"heron\.flags must be a list with a bool for each of 5 layers"):
        layers_of(c, "flags", bool, 5)
    with pytest.raises(CheckpointError, match=r"nextn_predict_layers"):
        config(tmp_path, {"block_count": 4, "nextn_predict_layers": 4})


def test_one_limit_is_given_for_every_layer(tmp_path: Path) -> None:
    facts = {"block_count": 2, "swiglu_clamp_exp": [7.0, 7.0], "swiglu_clamp_shexp": [7.0, 7.0]}
    assert limit_of(config(tmp_path, facts), 2) == 7.0
    with pytest.raises(CheckpointError, match=r"heron\.swiglu_clamp_exp and those of shared experts must all be the same"):
        limit_of(config(tmp_path, {**facts, "swiglu_clamp_shexp": [7.0, 8.0]}), 2)
    with pytest.raises(CheckpointError, match=r"heron\.swiglu_clamp_shexp must be a list with a float for each of 2 layers"):
        limit_of(config(tmp_path, {**facts, "swiglu_clamp_shexp": [7.0]}), 2)


def test_the_heads_of_attention_over_latents_have_keys_of_their_own(tmp_path: Path) -> None:
    facts = {"attention.key_length_mla": 24, "attention.value_length_mla": 16, "rope.dimension_count": 8}
    c = config(tmp_path, {**facts, "attention.value_length": 512})
    assert [c.size(key) for key in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")] == [16, 8, 16]


def test_a_rotation_is_the_same_in_its_own_words(tmp_path: Path) -> None:
    words = {"freq_base": 10000.0, "scaling.type": "yarn", "scaling.factor": 4.0, "scaling.original_context_length": 256,
             "scaling.yarn_log_multiplier": 0.1}  # fmt: skip
    found = rope_for(config(tmp_path, {f"rope.{key}": value for key, value in words.items()}), 16, 4096)
    scaling = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256, "mscale": 1.0, "mscale_all_dim": 1.0}
    assert found == rope_for(Config({"rope_scaling": scaling}, Path("f")), 16, 4096)
    assert len(rope_for(config(tmp_path, {"rope.dimension_count": 8, "rope.scaling.type": "none"}), 16, 1).inv_freq) == 4
    with pytest.raises(CheckpointError, match=r"heron\.rope\.scaling\.type 'longrope' is unknown"):
        rope_for(config(tmp_path, {"rope.scaling.type": "longrope"}), 16, 1)


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("model.embed_tokens.weight", ("token_embd.weight", None)),
        ("model.layers.3.self_attn.q_proj.bias", ("blk.3.attn_q.bias", None)),
        ("model.layers.12.mlp.experts.7.gate_proj.weight", ("blk.12.ffn_gate_exps.weight", 7)),
        ("model.layers.1.mlp.gate.e_score_correction_bias", ("blk.1.exp_probs_b.bias", None)),
        ("model.layers.1.self_attn.dt_bias", ("blk.1.ssm_dt.bias", None)),
        ("layers.2.mine.weight", ("blk.2.theirs.weight", None)),
        ("whole", ("all", None)),
    ],
)
def test_names(name: str, stored: tuple[str, int | None]) -> None:
    assert gguf_name(name, {"mine": "theirs", "whole": "all"}) == stored


def test_experts_are_slices_also_where_gate_and_up_lie_together(tmp_path: Path) -> None:
    both = np.arange(2 * 6 * 4, dtype=np.float32).reshape(2, 6, 4)
    found = checkpoint(tmp_path, {}, {"blk.0.ffn_gate_up_exps.weight": both, "blk.0.ffn_down_exps.weight": both})
    name = "model.layers.0.mlp.experts.1.{}_proj.weight"
    gate, up, down = (values_of(find_gguf(found, {}, name.format(part))) for part in ("gate", "up", "down"))
    assert (gate == both[1, :3]).all()
    assert (up == both[1, 3:]).all()
    assert (down == both[1]).all()


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    found = checkpoint(tmp_path, {})
    with pytest.raises(CheckpointError, match=r"blk\.0\.attn_norm\.weight"):
        find_gguf(found, {}, "model.layers.0.input_layernorm.weight")
    with pytest.raises(CheckpointError, match=r"'model\.layers\.0\.wing\.weight'.*has no name in GGUF files"):
        find_gguf(found, {}, "model.layers.0.wing.weight")
    assert find_gguf(found, {}, "token_embd.weight").shape == (7, 4)


def test_architectures_stand_for_model_types(tmp_path: Path) -> None:
    assert model_type(checkpoint(tmp_path, {}), {"heron": "heron_v2"}) == "heron_v2"
    assert model_type(checkpoint(tmp_path, {}), {"heron_v2": "x"}) == ""
