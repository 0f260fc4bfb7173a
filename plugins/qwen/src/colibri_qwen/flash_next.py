"""The forward pass of Qwen3.8-Flash-Next: the layers of its relatives between gated residual streams, with an indexer that
chooses what attention sees, and embeddings of n-grams."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from colibri.compute.blocks import draft_streams
from colibri.compute.checkpoint import Checkpoint
from colibri.compute.graph import Graph, Scope
from colibri.compute.operations import Value
from colibri.errors import CheckpointError

from .hybrid import delta_net, feed_forward, gated_attention, read
from .hybrid_checkpoint import FlashNextConfig, Ngrams


def build_flash_next(checkpoint: Checkpoint, g: Graph) -> None:
    """Declare the forward pass of `checkpoint` on `g`. Raises CheckpointError for a file that does not fit its config."""
    c = FlashNextConfig.of(checkpoint)
    base = c.base
    table = "ple.ple_embedding.ngram_embedding.shard_0.weight"
    read(checkpoint, g, {f"{base.root}.layers.{i}.{table}": "per_layer_token_embd.weight" for i in c.ngrams.layers})
    g.context(base.context)
    embedding = g.w(f"{base.root}.embed_tokens.weight", rows=base.vocab)
    x = g.tile(g.embed(g.tokens, embedding), c.streams)
    for i in range(len(base.linear)):
        w = g.scope(f"{base.root}.layers.{i}")
        if i in c.ngrams.layers:
            x = x + ngram_embedding(g, x, w.scope("ple"), c, i)
        h, write = gated_streams(g, x, w.scope("attn_hyper_connection"), c)
        if base.linear[i]:
            x = write(delta_net(g, h, w, base, i))
        else:
            x = write(gated_attention(g, h, w, base, i, select=index(g, h, w.scope("self_attn.indexer"), c, i)))
        h, write = gated_streams(g, x, w.scope("mlp_hyper_connection"), c)
        x = write(feed_forward(g, h, w, base, i))
    h, _ = gated_streams(g, g.hidden(x), g.scope(f"{base.root}.hyper_connection_mixer"), c)
    g.logits(g.linear(h, embedding if base.tied else g.w("lm_head.weight")))


def build_flash_next_draft(checkpoint: Checkpoint, g: Graph) -> bool:
    """Declare the draft head of `checkpoint`, a layer with attention over the model's streams; false where there is none."""
    if not checkpoint.has("mtp."):
        return False
    c, w = FlashNextConfig.draft(checkpoint), g.scope("mtp")
    base, layer = c.base, w.scope("layers.0")
    g.context(base.context)
    embedding = g.w(f"{base.root}.embed_tokens.weight", rows=base.vocab)
    token = g.rms_norm(g.embed(g.tokens, embedding), w["pre_fc_norm_embedding.weight"], base.eps, unit=base.unit)
    streams = g.given(c.streams * embedding.shape[1])
    hidden = g.rms_norm(streams, w["pre_fc_norm_hidden.weight"], base.eps, unit=base.unit)  # over all of them at once
    x = draft_streams(g, token, hidden, w["fc_embedding.weight"], w["fc_hidden.weight"], c.streams)
    h, write = gated_streams(g, x, layer.scope("attn_hyper_connection"), c)
    x = write(gated_attention(g, h, layer, base, 0, select=index(g, h, layer.scope("self_attn.indexer"), c, 0)))
    h, write = gated_streams(g, x, layer.scope("mlp_hyper_connection"), c)
    x = write(feed_forward(g, h, layer, base, 0))
    h, _ = gated_streams(g, g.hidden(x), w.scope("hyper_connection_mixer"), c)
    g.logits(g.linear(h, embedding if base.tied else g.w("lm_head.weight")))
    return True


def gated_streams(g: Graph, x: Value, w: Scope, c: FlashNextConfig) -> tuple[Value, Callable[[Value], Value]]:
    """What a block reads of the streams [rows, n * width], their mean after a gate for each value, and how its answer is
    written back: every stream gets a share of it, from 0 to 2 times the whole."""
    normed = g.rms_norm(x, w["hc_norm.weight"], c.base.eps, group=x.width // c.streams, unit=c.base.unit)
    down = g.silu(g.linear(normed, w["input_mix_weight_down.weight"]) * (1 / c.streams))
    gates = g.sigmoid(g.linear(down, w.matrix("input_mix_weight_up.weight", x.width)))

    def write(answer: Value) -> Value:
        shares = g.sigmoid(g.linear(normed, w.matrix("block_inject_weight.weight", c.streams)) * (1 / c.streams))
        return x + g.tile(answer, c.streams) * (shares * 2.0)

    return g.mix(normed * gates, c.streams), write


def index(g: Graph, x: Value, w: Scope, c: FlashNextConfig, i: int) -> Value:
    """The positions that layer i attends to: the runs of positions whose mean keys meet the queries best, and the last
    incomplete run."""
    how, eps = c.indexer, c.base.eps
    rope = msgspec.structs.replace(c.base.rope, head_dim=how.dim)
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


def ngram_embedding(g: Graph, x: Value, w: Scope, c: FlashNextConfig, i: int) -> Value:
    """What the n-grams that end at a position add to its streams: one value for all of them, each with its own gate, and a
    convolution over that. Rows of the tables are found by hashes, whose numbers the checkpoint holds."""
    how, eps = c.ngrams, c.base.eps
    width, count = x.width // c.streams, how.heads * (how.orders - 1)
    e = w.scope("ple_embedding")
    found = g.ngram(
        [e[f"ngram_embedding.shard_{part}.weight"] for part in range(how.parts)],
        state=g.rows((i, "tokens"), 1, window=how.orders),
        heads=how.heads,
        eos=how.eos,
        multipliers=_integers(e, how, "layer_multipliers", how.orders, (1 << 63) // c.base.vocab),
        sizes=_integers(e, how, "ngram_heads_vocab_sizes", count, 1 << 40),
        offsets=_integers(e, how, "ngram_heads_offsets", count, 1 << 40),
    )
    key = g.linear(found, w.matrix("key_proj.weight", x.width))
    key = g.rms_norm(key, w["norm_key.weight"], eps, group=width, unit=c.base.unit)
    query = g.rms_norm(x, w["norm_query.weight"], eps, group=width, unit=c.base.unit)
    match = g.activate(g.sum(key * query, width) * width**-0.5, "root", 1e-6)
    value = g.linear(found, w.matrix("value_proj.weight", width))
    y = g.tile(value, c.streams) * g.sigmoid(match)
    taps = w.w("conv1d.weight", x.width, how.kernel)
    state = g.rows((i, "ngrams"), x.width, window=(how.kernel - 1) * how.orders + 1)
    normed = g.rms_norm(y, w["norm_conv.weight"], eps, group=width, unit=c.base.unit)
    return y + g.silu(g.conv(normed, taps, state=state, dilation=how.orders))


def _integers(w: Scope, how: Ngrams, name: str, count: int, limit: int) -> Sequence[int]:
    """`count` whole numbers from 0 to below `limit`, of a table or of the configuration."""
    found = how.numbers.get(name)
    table = None if found is not None else w.tensor(name)
    if table is not None:
        found = tuple(int(value) for value in table.numbers()) if table.dtype == "i64" else ()
    if found is None or len(found) != count or not all(0 <= value < limit for value in found):
        reason = f"must hold {count} whole numbers from 0 to below {limit}"
        raise table.error(reason) if table is not None else CheckpointError(f"{name} {reason}")
    return found
