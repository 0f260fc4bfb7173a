from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from colibri.compute.blocks import Index, Latent, Routing
from colibri.compute.config import Config
from colibri.compute.delta import GatedDelta
from colibri.compute.rope import Rope
from colibri.compute.sizes import dense_layers, gated_delta_of, index_of, latent_of, routing_of, streams_of
from colibri.errors import CheckpointError


def of(**values: Any) -> Config:
    return Config(values, Path("config.json"))


def test_one_router_has_many_spellings() -> None:
    expected = Routing(8, 2, norm=False, factor=2.5, groups=4, top_groups=2, shared=True)
    one = of(n_routed_experts=8, num_experts_per_tok=2, norm_topk_prob=False, routed_scaling_factor=2.5, n_group=4,
             topk_group=2, n_shared_experts=1, scoring_func="sigmoid")  # fmt: skip
    other = of(num_experts=8, num_experts_per_token=2, moe_renormalize=False, routed_scaling_factor=2.5, num_expert_group=4,
               topk_group=2, num_shared_experts=2, moe_router_activation_func="sigmoid")  # fmt: skip
    assert routing_of(one) == routing_of(other) == expected
    plain = of(n_routed_experts=8, num_experts_per_tok=2, n_group=4, topk_group=2, use_grouped_topk=False)
    assert routing_of(plain) == Routing(8, 2, norm=True, factor=1.0, shared=False)
    assert routing_of(plain, shared=1).shared


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"scoring_func": "softmax"}, "scoring_func is 'softmax'"),
        ({"n_group": 3}, "n_group is 3, which does not divide n_routed_experts, 8"),
        ({"topk_group": 2}, "topk_group must be a whole number from 1 to 1"),
        ({"num_experts_per_tok": 9}, "num_experts_per_tok must be a whole number from 1 to 8"),
        ({"n_routed_experts": None}, "n_routed_experts is missing"),
    ],
)
def test_a_router_that_can_not_be_is_refused(edit: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        routing_of(of(**{"n_routed_experts": 8, "num_experts_per_tok": 2, **edit}))
    assert message in str(caught.value)


def test_dense_layers_come_first_or_are_named() -> None:
    assert dense_layers(of(), 3, 1) == (True, False, False)
    assert dense_layers(of(first_k_dense_replace=0, moe_layer_freq=2), 4, 1) == (False, True, False, True)
    assert dense_layers(of(mlp_layer_types=["sparse", "dense"], first_k_dense_replace=2), 2, 1) == (False, True)


LATENT = {"qk_nope_head_dim": 16, "qk_rope_head_dim": 9, "num_attention_heads": 4, "v_head_dim": 8, "kv_lora_rank": 32}


def test_attention_over_latents() -> None:
    assert latent_of(of(**LATENT), None, split=True, sharpness=2.0) == Latent(4, 16, 9, 8, 32, 0.4, None, False, True)
    assert latent_of(of(**LATENT, q_lora_rank=7), None, split=False).compressed


def test_an_indexer_turns_the_first_values_of_its_heads() -> None:
    given = of(index_head_dim=16, index_topk=8, index_n_heads=3)
    assert index_of(given, Rope(8, (1.0,)), pool=4) == Index(3, 16, 2, Rope(16, (1.0,)))
    with pytest.raises(CheckpointError, match="index_topk is 8, not a multiple of index_kpool, 3"):
        index_of(given, None, pool=3)
    with pytest.raises(CheckpointError, match="index_head_dim is 16, less than qk_rope_head_dim, 32"):
        index_of(given, Rope(32, (1.0,)))


def test_streams() -> None:
    found = streams_of(of(hc_mult=4, hc_sinkhorn_iters=20, hc_eps=1e-6), 1e-5)
    assert (found.n, found.iterations, found.eps, found.norm_eps) == (4, 20, 1e-6, 1e-5)


DELTA = {"linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_key_head_dim": 16, "linear_value_head_dim": 8}
STORED = {"grouped": False, "joint": True, "turns": False, "log": True}


def test_a_gated_delta_network() -> None:
    found = gated_delta_of(of(**DELTA, output_gate_type="sigmoid"), 1e-5, **STORED)
    assert found == GatedDelta(2, 6, 16, 8, 4, 1e-5, "sigmoid", joint=True)
    assert (found.keys, found.values) == (32, 48)
    assert gated_delta_of(of(**DELTA, linear_conv_kernel_dim=3), 1e-5, **STORED).kernel == 3


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"output_gate_type": "tanh"}, "output_gate_type is 'tanh'; silu and sigmoid can be computed"),
        ({"linear_num_key_heads": 4}, "linear_num_key_heads is 4, which does not divide linear_num_value_heads, 6"),
        ({"linear_key_head_dim": None}, "linear_key_head_dim is missing"),
        ({"linear_conv_kernel_dim": 65}, "linear_conv_kernel_dim must be a whole number from 1 to 64"),
    ],
)
def test_a_gated_delta_network_that_can_not_be_is_refused(edit: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        gated_delta_of(of(**{**DELTA, **edit}), 1e-5, **STORED)
    assert message in str(caught.value)
