"""The draft head of Inkling: one layer without experts."""

from __future__ import annotations

from colibri.compute.checkpoint import Checkpoint
from colibri.compute.graph import Graph

from .blocks import embed, unembed
from .checkpoint import InklingConfig, is_second
from .graph import layer


def build_draft(checkpoint: Checkpoint, g: Graph) -> bool:
    """Declare the first of the draft heads of `checkpoint`; false where there is none, and for Inkling-2. Those behind it,
    which go on from what it makes, are left alone, and so are sounds: it takes the positions of tokens only."""
    w = g.scope("model.mtp.layers.0")
    if is_second(checkpoint) or not checkpoint.has(f"{w.prefix}."):
        return False
    c, normed = InklingConfig.draft(checkpoint)
    token = embed(g, c)
    hidden = g.rms_norm(g.given(token.width), w["hidden_norm.weight"], c.eps)
    x = g.linear(g.concat(hidden, g.rms_norm(token, w["embed_norm.weight"], c.eps)), w["input_proj.weight"])
    x = layer(g, x, w.scope("transformer_block"), c, c.layers[0], 0)
    if normed:
        x = g.rms_norm(x, g.w("model.mtp.chain_norm.weight"), c.eps)
    g.logits(unembed(g, x * (1 / c.mup), c))
    return True
