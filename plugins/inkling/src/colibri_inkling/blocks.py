"""What the forward passes of both generations share."""

from __future__ import annotations

from colibri.compute.graph import Graph, Scope
from colibri.compute.operations import Value

from .checkpoint import Trunk


def embed(g: Graph, c: Trunk) -> Value:
    """The tokens, normed."""
    g.context(c.context)
    x = g.embed(g.tokens, g.w("model.llm.embed.weight", rows=c.vocab))
    return g.rms_norm(x, g.w("model.llm.embed_norm.weight"), c.eps)


def unembed(g: Graph, x: Value, c: Trunk) -> Value:
    """Logits of the tokens in use; the rows after theirs only fill the matrix up."""
    return g.linear(x, g.weight(g.find("model.llm.unembed.weight").rows(0, c.used)))


def convolve(g: Graph, x: Value, w: Scope, name: str, c: Trunk, key: object) -> Value:
    """x and its short convolution."""
    state = g.rows((key, name), x.width, window=c.kernel)
    return x + g.conv(x, w.w(f"{name}.weight", x.width, c.kernel), state=state)
