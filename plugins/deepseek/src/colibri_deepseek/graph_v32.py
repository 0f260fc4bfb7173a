"""The forward pass of DeepSeek V3.2 (https://arxiv.org/abs/2512.02556): latent attention to the positions that an indexer
chooses, and experts beside a shared one. V3 (https://arxiv.org/abs/2412.19437) is the same without the indexer."""

from __future__ import annotations

from colibri.compute.blocks import (
    balanced_moe,
    draft_input,
    gated_mlp,
    latent_attention,
    latent_projections,
    lightning_index,
)
from colibri.compute.checkpoint import Checkpoint
from colibri.compute.gguf_names import has_layer
from colibri.compute.graph import Graph
from colibri.compute.operations import Value

from .checkpoint_v32 import V32Config


def build_graph(checkpoint: Checkpoint, g: Graph) -> None:
    """Declare the forward pass of `checkpoint` on `g`. Raises CheckpointError for a file that does not fit its config."""
    c = V32Config.of(checkpoint)
    g.context(c.context)
    embedding = g.w("model.embed_tokens.weight", rows=c.vocab)
    x = g.embed(g.tokens, embedding)
    for i, dense in enumerate(c.dense):
        x = _layer(g, x, c, i, dense=dense)
    x = g.hidden(g.rms_norm(x, g.w("model.norm.weight"), c.eps))
    g.logits(g.linear(x, embedding if c.tied else g.w("lm_head.weight")))


def build_draft(checkpoint: Checkpoint, g: Graph) -> bool:
    """Declare the draft head of `checkpoint`, a layer behind all others; false where there is none. Its own copies of the
    embedding and of the last projection are left alone."""
    c = V32Config.of(checkpoint)
    last = len(c.dense)
    w = g.scope(f"model.layers.{last}")
    if not has_layer(checkpoint, last, w.prefix):
        return False
    g.context(c.context)
    embedding = g.w("model.embed_tokens.weight", rows=c.vocab)
    x = draft_input(g, embedding, w["enorm.weight"], w["hnorm.weight"], w["eh_proj.weight"], c.eps)
    x = g.hidden(g.rms_norm(_layer(g, x, c, last, dense=False), w["shared_head.norm.weight"], c.eps))
    g.logits(g.linear(x, embedding if c.tied else g.w("lm_head.weight")))
    return True


def _layer(g: Graph, x: Value, c: V32Config, i: int, *, dense: bool) -> Value:
    """The residual behind layer i."""
    w = g.scope(f"model.layers.{i}")
    own, mlp = w.scope("self_attn"), w.scope("mlp")
    h = g.rms_norm(x, w["input_layernorm.weight"], c.eps)
    hidden, q, latent, key = latent_projections(g, h, own, c.latent, 1e-6)  # whatever rms_norm_eps is
    select: Value | None = None
    if c.index is not None:
        asked, keys, weights = lightning_index(g, h, hidden, own.scope("indexer"), c.index)
        state = g.rows((i, "index"), c.index.head_dim)
        select = g.select(asked, keys, weights, state=state, budget=c.index.budget)
    y = latent_attention(g, q, latent, key, own, c.latent, layer=i, select=select)
    x = x + g.linear(y, own["o_proj.weight"])
    h = g.rms_norm(x, w["post_attention_layernorm.weight"], c.eps)
    return x + (gated_mlp(g, h, mlp) if dense else balanced_moe(g, h, mlp, c.routing))
