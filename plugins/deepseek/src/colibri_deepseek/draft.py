"""The draft heads of DeepSeek's models."""

from __future__ import annotations

from colibri.compute.blocks import draft_streams
from colibri.compute.checkpoint import Checkpoint
from colibri.compute.gguf_names import model_type
from colibri.compute.graph import Graph

from . import graph_v32
from .checkpoint import V4Config
from .gguf import ARCHITECTURES
from .graph import collapse, layer


def build_draft(checkpoint: Checkpoint, g: Graph) -> bool:
    """Declare the draft head of `checkpoint`; false where there is none."""
    build = _build_v4 if model_type(checkpoint, ARCHITECTURES) == "deepseek_v4" else graph_v32.build_draft
    return build(checkpoint, g)


def _build_v4(checkpoint: Checkpoint, g: Graph) -> bool:
    """A layer that sees a window only, over the model's residual streams, which it brings into one row in a way of its own.
    Copies of the embedding and of the last projection are left alone."""
    if not checkpoint.has("mtp.0."):
        return False
    c, w = V4Config.of(checkpoint), g.scope("mtp.0")
    g.context(c.context)
    embedding = g.w("embed.weight", rows=c.vocab)
    width = embedding.shape[1]
    token = g.rms_norm(g.embed(g.tokens, embedding), w["enorm.weight"], c.eps)
    hidden = g.rms_norm(g.given(c.streams.n * width), w["hnorm.weight"], c.eps, group=width)
    x = draft_streams(g, token, hidden, w["e_proj.weight"], w["h_proj.weight"], c.streams.n)
    x = g.hidden(layer(g, x, w, c, None, 0, hashed=False))
    x = collapse(g, x, w["hc_head_fn"], w.matrix("hc_head_scale", 1), w["hc_head_base"], c)
    x = g.rms_norm(x, w["norm.weight"], c.eps)
    g.logits(g.linear(x, embedding if c.tied else g.w("head.weight")))
    return True
