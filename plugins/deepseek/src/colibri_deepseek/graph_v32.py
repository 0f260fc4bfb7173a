"""The forward pass of DeepSeek V3.2 (https://arxiv.org/abs/2512.02556): latent attention to the positions that an indexer
chooses, and experts beside a shared one. V3 (https://arxiv.org/abs/2412.19437) is the same without the indexer."""

from __future__ import annotations

from colibri.compute.blocks import balanced_moe, gated_mlp, latent_attention, latent_projections, lightning_index
from colibri.compute.checkpoint import Checkpoint
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
        w = g.scope(f"model.layers.{i}")
        own, mlp = w.scope("self_attn"), w.scope("mlp")
        h = g.rms_norm(x, w["input_layernorm.weight"], c.eps)
        hidden, q, latent, key = latent_projections(g, h, own, c.latent, 1e-6)  # whatever rms_norm_eps is
        select: Value | None = None
        if c.index is not None:
            asked, keys, weights = lightning_index(g, h, hidden, own.scope("indexer"), c.index)
            state = g.rows((i, "index"), c.index.head_dim)
            select = g.select(asked, keys, weights, state=state, budget=c.index.budget)
        y = latent_attention(g, q, latent, key, own["kv_b_proj.weight"], c.latent, layer=i, select=select)
        x = x + g.linear(y, own["o_proj.weight"])
        h = g.rms_norm(x, w["post_attention_layernorm.weight"], c.eps)
        x = x + (gated_mlp(g, h, mlp) if dense else balanced_moe(g, h, mlp, c.routing))
    x = g.rms_norm(x, g.w("model.norm.weight"), c.eps)
    g.logits(g.linear(x, embedding if c.tied else g.w("lm_head.weight")))
