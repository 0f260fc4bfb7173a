"""The configuration: every spelling of it, what follows where a key is absent, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from colibri.compute.checkpoint import open_checkpoint
from colibri.compute.operations import Glu
from colibri.errors import CheckpointError
from colibri.testing.checkpoints import write_checkpoint
from colibri_inkling import Inkling
from colibri_inkling.checkpoint import Heads, Inkling2Config, InklingConfig, Loop

DATA = Path(__file__).parent / "data"


def config_of(name: str) -> dict[str, Any]:
    return json.loads((DATA / name / "config.json").read_text())


def read(folder: Path, name: str, edit: dict[str, Any]) -> InklingConfig | Inkling2Config:
    """The configuration of the model `name` with other keys in the part about text; None leaves a key out."""
    config = config_of(name)
    text = config.get("text_config", config)
    text.update(edit)
    for key in [key for key, value in text.items() if value is None]:
        del text[key]
    checkpoint = open_checkpoint(write_checkpoint(folder, config, {}))
    return InklingConfig.of(checkpoint) if name == "inkling" else Inkling2Config.of(checkpoint)


def test_inkling() -> None:
    c = InklingConfig.of(open_checkpoint(DATA / "inkling"))
    full, local = Heads(4, 2, 16, 16), Heads(4, 2, 16, 8, window=8)
    assert c.layers == (local, full, local, full)
    assert c.dense == (True, False, False, False)
    assert (c.d_rel, c.kernel, c.floor, c.alpha, c.mup) == (4, 4, 12.0, 0.3, 2.0)
    assert (c.experts, c.top_k, c.shared, c.route_scale) == (8, 2, 2, 2.0)
    assert (c.vocab, c.used, c.eps, c.context) == (256, 250, 1e-6, 131072)


def test_inkling_2() -> None:
    c = Inkling2Config.of(open_checkpoint(DATA / "inkling2"))
    full, local = Heads(4, 2, 16, 16), Heads(4, 2, 16, 8, window=8)
    assert c.layers == (local, full, local, full, local)
    assert (c.clip, c.rel_clip, c.block, c.cap, c.loop) == (4.0, 1.5, 2, 30.0, Loop(5, 5, 1))
    assert c.glu == Glu("situ", beta=4.0, linear_beta=25.0)
    assert (c.experts, c.top_k, c.route_scale, c.context) == (8, 2, 2.0, 1048576)


def test_inkling_2_with_looped_layers() -> None:
    assert Inkling2Config.of(open_checkpoint(DATA / "inkling2_loop")).loop == Loop(1, 3, 3)


@pytest.mark.parametrize(
    ("name", "edit"),
    [
        ("inkling", {"local_layer_ids": None, "layer_types": ["hybrid_sliding", "hybrid"] * 2}),
        ("inkling", {"dense_mlp_idx": None, "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"]}),
        ("inkling", {"sconv_kernel_size": None, "conv_kernel_size": 4}),
        ("inkling", {"max_position_embeddings": None, "model_max_length": 131072}),
        ("inkling", {"sliding_window_size": None, "sliding_window": 8}),
        ("inkling", {"n_routed_experts": None, "num_local_experts": 8}),
        ("inkling", {"logits_mup_width_multiplier": None, "embedding_multiplier": 2.0}),
        ("inkling", {"swa_num_attention_heads": None, "swa_head_dim": None}),
        ("inkling2", {"route_scale": None, "routed_scaling_factor": 2.0}),
        ("inkling2", {"scoring_func": None, "hidden_act": None, "mlp_gate_softcap": None, "mlp_up_softcap": None}),
        (
            "inkling2_loop",
            {
                "loop_layer_index_start": None,
                "loop_layer_index_end": None,
                "loop_num_passes": None,
                "loop_config": {"core_start": 1, "core_end": 3, "num_passes": 3, "gate_rank": 8},
            },
        ),
    ],
)
def test_another_spelling_says_the_same(name: str, edit: dict[str, Any], tmp_path: Path) -> None:
    assert read(tmp_path / "a", name, edit) == read(tmp_path / "b", name, {})


def test_the_nested_file_that_a_model_with_vision_has(tmp_path: Path) -> None:
    config = {"model_type": "inkling2_loop", "text_config": config_of("inkling2_loop"), "vision_config": {}}
    checkpoint = open_checkpoint(write_checkpoint(tmp_path, config, {}))
    assert Inkling2Config.of(checkpoint) == Inkling2Config.of(open_checkpoint(DATA / "inkling2_loop"))


@pytest.mark.parametrize("name", ["inkling", "inkling2"])
def test_every_sixth_layer_sees_all_where_nothing_else_is_said(name: str, tmp_path: Path) -> None:
    c = read(tmp_path, name, {"layer_types": None, "local_layer_ids": None, "num_hidden_layers": 13})
    assert [i for i, heads in enumerate(c.layers) if not heads.window] == [5, 11]


def test_logits_grow_with_the_position_only_where_a_floor_is_given(tmp_path: Path) -> None:
    assert read(tmp_path / "a", "inkling", {"log_scaling_n_floor": None}).floor == 0
    assert read(tmp_path / "b", "inkling2", {"log_scaling_n_floor": None}).floor == 128000
    assert read(tmp_path / "c", "inkling2_loop", {"log_scaling_n_floor": None}).floor == 8192


@pytest.mark.parametrize("name", ["inkling", "inkling2", "inkling2_loop"])
def test_every_model_that_can_be_computed_is_a_variant(name: str) -> None:
    variant = Inkling().variant_for(open_checkpoint(DATA / name))
    assert variant is not None
    assert variant.name == {"inkling": "inkling", "inkling2": "inkling-2-small", "inkling2_loop": "inkling-2-mini"}[name]


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("inkling", "num_hidden_layers", 0),
        ("inkling", "num_hidden_layers", 1 << 40),
        ("inkling", "num_attention_heads", 3),
        ("inkling", "num_key_value_heads", None),
        ("inkling", "swa_num_key_value_heads", 3),
        ("inkling", "swa_num_key_value_heads", True),
        ("inkling", "head_dim", "16"),
        ("inkling", "swa_head_dim", -1),
        ("inkling", "sliding_window_size", None),
        ("inkling", "rel_extent", 0),
        ("inkling", "d_rel", 1.5),
        ("inkling", "local_layer_ids", [0, 4]),
        ("inkling", "local_layer_ids", [0, -1]),
        ("inkling", "local_layer_ids", [True]),
        ("inkling", "local_layer_ids", 3),
        ("inkling", "layer_types", ["hybrid"] * 3),
        ("inkling", "layer_types", ["full"] * 4),
        ("inkling", "layer_types", "hybrid"),
        ("inkling", "mlp_layer_types", [["dense"]] * 4),
        ("inkling", "dense_mlp_idx", 5),
        ("inkling", "n_routed_experts", 0),
        ("inkling", "num_experts_per_tok", 9),
        ("inkling", "n_shared_experts", 0),
        ("inkling", "shared_expert_sink", False),
        ("inkling", "shared_expert_sink", "yes"),
        ("inkling", "route_scale", float("nan")),
        ("inkling", "log_scaling_n_floor", 0),
        ("inkling", "log_scaling_alpha", float("inf")),
        ("inkling", "sconv_kernel_size", 0),
        ("inkling", "logits_mup_width_multiplier", 0),
        ("inkling", "unpadded_vocab_size", 257),
        ("inkling", "vocab_size", None),
        ("inkling", "rms_norm_eps", -1e-6),
        ("inkling", "hidden_act", "gelu"),
        ("inkling", "max_position_embeddings", 0),
        ("inkling2", "scoring_func", "softmax"),
        ("inkling2", "qk_l2_clip_threshold", 0),
        ("inkling2", "rel_l2_clip_threshold", "8"),
        ("inkling2", "n_layers_per_attn_res_block", 0),
        ("inkling2", "mlp_gate_softcap", -4),
        ("inkling2", "mlp_up_softcap", []),
        ("inkling2", "final_logit_softcapping", 0),
        ("inkling2_loop", "loop_layer_index_start", 0),
        ("inkling2_loop", "loop_layer_index_end", 1),
        ("inkling2_loop", "loop_layer_index_end", 6),
        ("inkling2_loop", "loop_num_passes", 0),
        ("inkling2_loop", "loop_config", 3),
    ],
)
def test_a_bad_value_is_named(name: str, key: str, value: object, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError) as caught:
        read(tmp_path, name, {key: value})
    message = str(caught.value)
    nested = "text_config." if name == "inkling" else ""
    assert message.startswith(f"{tmp_path / 'config.json'}: {nested}")
    assert key in message
    assert "\n" not in message


def test_loops_begin_and_end_with_blocks(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"loop_layer_index_start is 1, which is no multiple of .*block, 2"):
        read(tmp_path, "inkling2_loop", {"n_layers_per_attn_res_block": 2})


@pytest.mark.parametrize("text", [3, [], "inkling"])
def test_a_part_about_text_that_is_none(text: object, tmp_path: Path) -> None:
    config = {"model_type": "inkling_mm_model", "text_config": text}
    checkpoint = open_checkpoint(write_checkpoint(tmp_path, config, {}))
    with pytest.raises(CheckpointError, match="text_config must be an object"):
        InklingConfig.of(checkpoint)
