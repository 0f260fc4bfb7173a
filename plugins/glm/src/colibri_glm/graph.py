"""The forward pass of GLM-5 (https://arxiv.org/abs/2602.15763): latent attention to chosen positions, and experts beside a
shared one. GLM-5.3-Flash keeps memories in most layers, chooses positions by runs, and has several residual streams."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from colibri.compute.blocks import (
    balanced_moe,
    draft_input,
    gated_mlp,
    hyper_connection,
    latent_attention,
    latent_projections,
    lightning_index,
)
from colibri.compute.checkpoint import Checkpoint
from colibri.compute.delta import channel_delta
from colibri.compute.gguf_names import has_layer
from colibri.compute.graph import Graph, Scope
from colibri.compute.operations import Value

from .checkpoint import GlmConfig


def build_graph(checkpoint: Checkpoint, g: Graph) -> None:
    """Declare the forward pass of `checkpoint` on `g`. Raises CheckpointError for a file that does not fit its config."""
    c = GlmConfig.of(checkpoint)
    g.context(c.context)
    embedding = g.w(f"{c.prefix}.embed_tokens.weight", rows=c.vocab)
    x = g.embed(g.tokens, embedding)
    x = g.tile(x, c.streams.n) if c.streams else x
    select: Value | None = None
    for i, (attention, dense) in enumerate(zip(c.attention, c.dense, strict=True)):
        x, select = _layer(g, x, c, i, attention, dense=dense, select=select)
    x = g.mix(x, c.streams.n) if c.streams else x
    x = g.hidden(g.rms_norm(x, g.w(f"{c.prefix}.norm.weight"), c.eps))
    g.logits(g.linear(x, embedding if c.tied else g.w("lm_head.weight")))


def build_draft(checkpoint: Checkpoint, g: Graph) -> bool:
    """Declare the draft head of `checkpoint`, a layer behind all others, which chooses positions for itself and has one
    residual stream, whatever the model has. False where there is none."""
    c = replace(GlmConfig.of(checkpoint), streams=None)
    last = len(c.attention)
    w = g.scope(f"{c.prefix}.layers.{last}")
    if not has_layer(checkpoint, last, w.prefix):
        return False
    g.context(c.context)
    embedding = g.w(f"{c.prefix}.embed_tokens.weight", rows=c.vocab)
    x = draft_input(g, embedding, w["enorm.weight"], w["hnorm.weight"], w["eh_proj.weight"], c.eps)
    x, _ = _layer(g, x, c, last, "full", dense=False, select=None)
    x = g.hidden(g.rms_norm(x, w["shared_head.norm.weight"], c.eps))
    g.logits(g.linear(x, embedding if c.tied else g.w("lm_head.weight")))
    return True


def _layer(
    g: Graph, x: Value, c: GlmConfig, i: int, attention: str, *, dense: bool, select: Value | None
) -> tuple[Value, Value | None]:
    """The residual behind layer i, and the positions that it attended to."""
    w = g.scope(f"{c.prefix}.layers.{i}")
    own, mlp = w.scope("self_attn"), w.scope("mlp")
    h, write = _connection(g, x, w, "hc_attn", c)
    h = g.rms_norm(h, w["input_layernorm.weight"], c.eps)
    if attention == "linear":
        y = _memory(g, h, own, c, layer=i)
    else:
        hidden, q, latent, key = latent_projections(g, h, own, c.latent, c.latent_eps)
        if attention == "full":
            select = _choice(g, h, hidden, own.scope("indexer"), c, layer=i)
        y = latent_attention(g, q, latent, key, own, c.latent, layer=i, select=select)
    x = write(g.linear(y, own["o_proj.weight"]))
    h, write = _connection(g, x, w, "hc_ffn", c)
    h = g.rms_norm(h, w["post_attention_layernorm.weight"], c.eps)
    return write(gated_mlp(g, h, mlp, c.glu) if dense else balanced_moe(g, h, mlp, c.routing, c.glu)), select


def _connection(g: Graph, x: Value, w: Scope, name: str, c: GlmConfig) -> tuple[Value, Callable[[Value], Value]]:
    """What a block reads of the residual, and how its answer is written back."""
    if c.streams is None:
        return x, lambda answer: x + answer
    return hyper_connection(g, x, w[f"{name}_fn"], w[f"{name}_base"], w[f"{name}_scale"], c.streams)


def _memory(g: Graph, x: Value, w: Scope, c: GlmConfig, *, layer: int) -> Value:
    assert c.delta is not None
    gate = g.linear(g.linear(x, w["g_a_proj.weight"]), w["g_b_proj.weight"])
    return channel_delta(g, x, w, c.delta, gate=gate, layer=layer)


def _choice(g: Graph, x: Value, hidden: Value, w: Scope, c: GlmConfig, *, layer: int) -> Value:
    """The positions that a layer attends to."""
    q, k, weights = lightning_index(g, x, hidden, w, c.index)
    keys = g.rows((layer, "index"), c.index.head_dim, every=c.pool)
    if c.pool == 1:
        return g.select(q, k, weights, state=keys, budget=c.index.budget)
    # A run of positions is one key; those of the run that is not complete yet are always looked at.
    raw = g.rows((layer, "run"), 2 * c.index.head_dim, window=c.pool)
    gate = g.linear(x, w["index_kpool_compress_gate"])
    g.pool(k, gate, raw=raw, pooled=keys, ape=w["index_kpool_compress_ape"])
    return g.select(q, None, weights, state=keys, budget=c.index.budget, expand=True)
