"""The forward pass of Qwen3.8-Flash-Next: the layers of its relatives between gated residual streams, with an indexer that
chooses what attention sees, and embeddings of n-grams."""

from __future__ import annotations

from msgspec.structs import replace

from colibri.compute.blocks import draft_streams, gated_streams
from colibri.compute.checkpoint import Checkpoint
from colibri.compute.delta import gated_delta
from colibri.compute.graph import Graph, Scope
from colibri.compute.ngrams import ngram_embedding
from colibri.compute.operations import Value

from .hybrid import feed_forward, gated_attention, read
from .hybrid_checkpoint import FlashNextConfig


def build_flash_next(checkpoint: Checkpoint, g: Graph) -> None:
    """Declare the forward pass of `checkpoint` on `g`. Raises CheckpointError for a file that does not fit its config."""
    c = FlashNextConfig.of(checkpoint)
    base = c.base
    table = "ple.ple_embedding.ngram_embedding.shard_0.weight"
    read(checkpoint, g, {f"{base.root}.layers.{i}.{table}": "per_layer_token_embd.weight" for i in c.ngram_layers})
    g.context(base.context)
    embedding = g.w(f"{base.root}.embed_tokens.weight", rows=base.vocab)
    x = g.tile(g.embed(g.tokens, embedding), c.streams.n)
    for i in range(len(base.linear)):
        w = g.scope(f"{base.root}.layers.{i}")
        if i in c.ngram_layers:
            x = x + ngram_embedding(g, x, w.scope("ple"), c.ngrams, c.streams, layer=i)
        x = _layer(g, x, w, c, i)
    h, _ = gated_streams(g, g.hidden(x), g.scope(f"{base.root}.hyper_connection_mixer"), c.streams)
    g.logits(g.linear(h, embedding if base.tied else g.w("lm_head.weight")))


def build_flash_next_draft(checkpoint: Checkpoint, g: Graph) -> bool:
    """Declare the draft head of `checkpoint`, a layer with attention over the model's streams; false where there is none."""
    if not checkpoint.has("mtp."):
        return False
    c, w = FlashNextConfig.draft(checkpoint), g.scope("mtp")
    base = c.base
    g.context(base.context)
    embedding = g.w(f"{base.root}.embed_tokens.weight", rows=base.vocab)
    token = g.rms_norm(g.embed(g.tokens, embedding), w["pre_fc_norm_embedding.weight"], base.eps, unit=base.unit)
    streams = g.given(c.streams.n * embedding.shape[1])
    hidden = g.rms_norm(streams, w["pre_fc_norm_hidden.weight"], base.eps, unit=base.unit)  # over all of them at once
    x = draft_streams(g, token, hidden, w["fc_embedding.weight"], w["fc_hidden.weight"], c.streams.n)
    x = g.hidden(_layer(g, x, w.scope("layers.0"), c, 0))
    h, _ = gated_streams(g, x, w.scope("hyper_connection_mixer"), c.streams)
    g.logits(g.linear(h, embedding if base.tied else g.w("lm_head.weight")))
    return True


def _layer(g: Graph, x: Value, w: Scope, c: FlashNextConfig, i: int) -> Value:
    """The streams behind layer i."""
    h, write = gated_streams(g, x, w.scope("attn_hyper_connection"), c.streams)
    if c.base.linear[i]:
        x = write(gated_delta(g, h, w.scope("linear_attn"), c.base.delta, layer=i))
    else:
        x = write(gated_attention(g, h, w, c.base, i, select=index(g, h, w.scope("self_attn.indexer"), c, i)))
    h, write = gated_streams(g, x, w.scope("mlp_hyper_connection"), c.streams)
    return write(feed_forward(g, h, w, c.base, i))


def index(g: Graph, x: Value, w: Scope, c: FlashNextConfig, i: int) -> Value:
    """The positions that layer i attends to: the runs of positions whose mean keys meet the queries best, and the last
    incomplete run."""
    how, eps = c.indexer, c.base.eps
    rope = replace(c.base.rope, head_dim=how.dim)
    if how.apart:
        q, k = g.linear(x, w.matrix("q_proj.weight", how.heads * how.dim)), g.linear(x, w["k_proj.weight"])
    else:
        both = g.linear(x, w.matrix("index_qk_proj.weight", (how.heads + 1) * how.dim))
        q, k = g.slice(both, 0, how.heads * how.dim), g.slice(both, how.heads * how.dim, how.dim)
    q = g.rope(g.rms_norm(q, w["q_layernorm.weight"], eps, group=how.dim, unit=c.base.unit), rope)
    raw = g.rows((i, "index keys"), how.dim, window=how.every)
    pooled = g.rows((i, "index"), how.dim, every=how.every)
    g.pool(k, raw=raw, pooled=pooled, norm=w["k_layernorm.weight"], eps=eps, unit=c.base.unit, rope=rope)
    return g.select(q, state=pooled, budget=how.budget, expand=True)
