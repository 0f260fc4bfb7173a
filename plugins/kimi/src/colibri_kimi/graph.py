"""The forward pass of Kimi Linear (https://arxiv.org/abs/2510.26692), whose layers mostly have delta attention and else a
latent attention without positions, and of Kimi K3, which adds attention over the residual and experts on a latent."""

from __future__ import annotations

from functools import partial

from colibri.compute.blocks import (
    attend_residuals,
    balanced_routes,
    gated_mlp,
    latent_attention,
    latent_projections,
)
from colibri.compute.checkpoint import Checkpoint
from colibri.compute.delta import channel_delta
from colibri.compute.gguf_names import find_gguf
from colibri.compute.graph import Graph, Scope
from colibri.compute.operations import Value

from .checkpoint import KimiConfig
from .gguf import names_of

#: The latents' norms have an epsilon of their own, that no configuration names.
LATENT_EPS = 1e-6


def build_graph(checkpoint: Checkpoint, g: Graph) -> None:
    """Declare the forward pass of `checkpoint` on `g`. Raises CheckpointError for a file that does not fit its config."""
    c = KimiConfig.of(checkpoint)
    if checkpoint.format == "gguf":
        g.find = partial(find_gguf, checkpoint, names_of(c.delta_layers))
    g.context(c.context)
    model = g.scope(f"{c.prefix}model")
    embedding = g.w(f"{c.prefix}model.embed_tokens.weight", rows=c.vocab)
    x = g.embed(g.tokens, embedding)
    earlier: list[Value] = []  # what the residual was before each block of layers

    def residual(w: Scope, name: str) -> Value:
        """What is read of the residual: of its states before earlier blocks and its own by their scores."""

        def score(row: Value) -> Value:
            norm = None if c.joint_scores else w[f"{name}_norm.weight"]
            return g.linear(g.rms_norm(row, norm, c.eps), w.w(f"{name}_proj.weight", 1, row.width))

        return attend_residuals(g, [*earlier, x], score)

    for i in range(len(c.delta_layers)):
        w = model.scope(f"layers.{i}")
        h = g.rms_norm(residual(w, "self_attention_res"), w["input_layernorm.weight"], c.eps)
        attend = _delta if c.delta_layers[i] else _latent
        y = g.linear(attend(g, h, w.scope("self_attn"), c, i), w["self_attn.o_proj.weight"])
        if c.residual_block and i % c.residual_block == 0:
            earlier.append(x)
            x = y
        else:
            x = x + y
        h = g.rms_norm(residual(w, "mlp_res"), w["post_attention_layernorm.weight"], c.eps)
        if c.expert_layers[i]:
            x = x + _moe(g, h, w.scope("block_sparse_moe"), c)
        else:
            x = x + gated_mlp(g, h, w.scope("mlp"), c.glu)
    x = g.rms_norm(residual(model, "output_attn_res"), model["norm.weight"], c.eps)
    g.logits(g.linear(x, embedding if c.tied else g.w(f"{c.prefix}lm_head.weight")))


def _delta(g: Graph, x: Value, w: Scope, c: KimiConfig, layer: int) -> Value:
    if c.full_gate:
        gate = g.linear(x, w["g_proj.weight"])
    else:
        gate = g.linear(g.linear(x, w["g_a_proj.weight"]), w["g_b_proj.weight"])
    return channel_delta(g, x, w, c.delta, gate=gate, layer=layer)


def _latent(g: Graph, x: Value, w: Scope, c: KimiConfig, layer: int) -> Value:
    a = c.attention
    _, q, latent, key = latent_projections(g, x, w, a, LATENT_EPS)
    y = latent_attention(g, q, latent, key, w, a, layer=layer)
    return y * g.sigmoid(g.linear(x, w["g_proj.weight"])) if c.gated else y


def _moe(g: Graph, x: Value, w: Scope, c: KimiConfig) -> Value:
    """The router and the shared experts, which are one block, see x itself, the others perhaps a latent made of it."""
    experts = w.experts("experts.{e}", c.routing.experts, gate="w1.weight", up="w3.weight", down="w2.weight")
    z = g.linear(x, w["routed_expert_down_proj.weight"]) if c.latent else x
    y = g.experts(z, balanced_routes(g, x, w, c.routing), experts, c.glu)
    if c.latent_norm:
        y = g.rms_norm(y, w["routed_expert_norm.weight"], c.eps)
    if c.latent:
        y = g.linear(y, w["routed_expert_up_proj.weight"])
    return y + gated_mlp(g, x, w.scope("shared_experts"), c.glu) if c.routing.shared else y
