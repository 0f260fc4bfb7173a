"""Embeddings of n-grams: rows of large tables, found by hashes of the last tokens and added to the residual."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from ..errors import CheckpointError
from .blocks import GatedStreams
from .graph import Graph, Scope
from .operations import Value


class Ngrams(Struct, frozen=True):
    """The sizes of n-gram embeddings: `heads` rows for every n up to `orders`, from a table in `parts`; n-grams of tokens
    below `vocab` reach back to a token `eos`; `kernel` taps of the convolution. `numbers` holds those of the hashes where
    the checkpoint has them in its configuration, not in tensors."""

    orders: int
    heads: int
    parts: int
    vocab: int
    eos: int
    kernel: int
    numbers: Mapping[str, tuple[int, ...]] = {}


def ngram_embedding(g: Graph, x: Value, w: Scope, c: Ngrams, streams: GatedStreams, *, layer: object) -> Value:
    """What the n-grams that end at a position add to its streams x [rows, n * width]: one value for all of them, each with
    its own gate, and a convolution over that.

    `w` holds ple_embedding with the tables and the numbers of the hashes, key_proj, value_proj, conv1d, and the norms
    norm_key, norm_query and norm_conv.
    """
    width, count = x.width // streams.n, c.heads * (c.orders - 1)
    e = w.scope("ple_embedding")
    found = g.ngram(
        [e[f"ngram_embedding.shard_{part}.weight"] for part in range(c.parts)],
        state=g.rows((layer, "tokens"), 1, window=c.orders),
        heads=c.heads,
        eos=c.eos,
        multipliers=_numbers(e, c, "layer_multipliers", c.orders, (1 << 63) // c.vocab),
        sizes=_numbers(e, c, "ngram_heads_vocab_sizes", count, 1 << 40),
        offsets=_numbers(e, c, "ngram_heads_offsets", count, 1 << 40),
    )

    def normed(y: Value, name: str) -> Value:
        return g.rms_norm(y, w[f"{name}.weight"], streams.eps, group=width, unit=streams.unit)

    key = normed(g.linear(found, w.matrix("key_proj.weight", x.width)), "norm_key")
    query = normed(x, "norm_query")
    match = g.activate(g.sum(key * query, width) * width**-0.5, "root", 1e-6)
    value = g.linear(found, w.matrix("value_proj.weight", width))
    y = g.tile(value, streams.n) * g.sigmoid(match)
    taps = w.w("conv1d.weight", x.width, c.kernel)
    state = g.rows((layer, "ngrams"), x.width, window=(c.kernel - 1) * c.orders + 1)
    return y + g.silu(g.conv(normed(y, "norm_conv"), taps, state=state, dilation=c.orders))


def _numbers(w: Scope, c: Ngrams, name: str, count: int, limit: int) -> Sequence[int]:
    """`count` whole numbers from 0 to below `limit`, of a table or of the configuration."""
    found = c.numbers.get(name)
    table = None if found is not None else w.tensor(name)
    if table is not None:
        found = tuple(int(value) for value in table.numbers()) if table.dtype == "i64" else ()
    if found is None or len(found) != count or not all(0 <= value < limit for value in found):
        reason = f"must hold {count} whole numbers from 0 to below {limit}"
        raise table.error(reason) if table is not None else CheckpointError(f"{name} {reason}")
    return found
