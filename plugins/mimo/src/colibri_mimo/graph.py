"""The forward pass of MiMo-V2 (https://arxiv.org/abs/2601.02780): most layers see a window and have sinks, values are
narrower than keys, and a sigmoid router chooses among experts."""

from __future__ import annotations

from collections.abc import Sequence

from colibri.compute.blocks import balanced_moe, gated_mlp
from colibri.compute.checkpoint import Checkpoint, Tensor
from colibri.compute.graph import Graph, Scope
from colibri.compute.operations import Value
from colibri.compute.quantised import find_shards

from .checkpoint import Attention, MimoConfig


def build_graph(checkpoint: Checkpoint, g: Graph) -> None:
    """Declare the forward pass of `checkpoint` on `g`. Raises CheckpointError for a file that does not fit its config."""
    c = MimoConfig.of(checkpoint)
    g.context(c.context)
    embedding = g.w("model.embed_tokens.weight", rows=c.vocab)
    x = g.embed(g.tokens, embedding)
    for i, a in enumerate(c.attention):
        w = g.scope(f"model.layers.{i}")
        h = g.rms_norm(x, w["input_layernorm.weight"], c.eps)
        x = x + attend(g, checkpoint, h, w.scope("self_attn"), c, a, i)
        h = g.rms_norm(x, w["post_attention_layernorm.weight"], c.eps)
        if c.expert_layers[i]:
            x = x + balanced_moe(g, h, w.scope("mlp"), c.routing)
        else:
            x = x + gated_mlp(g, h, w.scope("mlp"))
    x = g.hidden(g.rms_norm(x, g.w("model.norm.weight"), c.eps))
    g.logits(g.linear(x, embedding if c.tied else g.w("lm_head.weight")))


def attend(g: Graph, checkpoint: Checkpoint, x: Value, w: Scope, c: MimoConfig, a: Attention, i: int) -> Value:
    """Layer i's attention over x."""
    fused = f"blk.{i}.attn_qkv.weight" if checkpoint.format == "gguf" else f"{w.prefix}.qkv_proj.weight"
    if fused in checkpoint.tensors or checkpoint.config.get("attention_projection_layout") == "fused_qkv":
        q, k, v = _from_shards(g, x, find_shards(checkpoint, fused, c.shards), a)
    else:
        q = g.linear(x, g.w(f"{w.prefix}.q_proj.weight", rows=a.heads * a.head_dim))
        k, v = (g.linear(x, w[f"{n}_proj.weight"]) for n in "kv")
    state = g.kv(i, a.kv_heads, a.head_dim, a.v_dim, window=a.window)
    sinks = w["attention_sink_bias"] if a.sinks else None
    y = g.attention(g.rope(q, a.rope), g.rope(k, a.rope), v * c.value_scale, state=state, sinks=sinks)
    return g.linear(y, w["o_proj.weight"])


def _from_shards(g: Graph, x: Value, shards: Sequence[Tensor], a: Attention) -> tuple[Value, Value, Value]:
    """q, k and v of one matrix made for several devices: each has its run of rows, with its heads of all three, which was
    quantised by itself."""
    n, rows = len(shards), shards[0].shape[0]
    widths = [heads // n * dim for heads, dim in ((a.heads, a.head_dim), (a.kv_heads, a.head_dim), (a.kv_heads, a.v_dim))]
    if rows != sum(widths) or a.heads % n or a.kv_heads % n:
        raise shards[0].error(f"has {rows} rows, {n} such shards do not hold {a.heads} and {a.kv_heads} heads")
    whole = g.concat(*(g.linear(x, g.weight(shard)) for shard in shards))
    q, k, v = (g.slice(whole, sum(widths[:i]), width, group=rows) for i, width in enumerate(widths))
    return q, k, v
