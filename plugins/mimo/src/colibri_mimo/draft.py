"""The draft head of MiMo-V2: one layer that sees a window and has no experts."""

from __future__ import annotations

from functools import partial

from colibri.compute.blocks import draft_input, gated_mlp
from colibri.compute.checkpoint import Checkpoint
from colibri.compute.gguf_names import find_gguf, has_layer
from colibri.compute.graph import Graph

from .checkpoint import MimoConfig
from .gguf import HEAD
from .graph import attend


def build_draft(checkpoint: Checkpoint, g: Graph) -> bool:
    """Declare the first of the draft heads of `checkpoint`; false where there is none. Those behind it, which take what it
    drafts, are left alone."""
    last, gguf = len(MimoConfig.of(checkpoint).attention), checkpoint.format == "gguf"
    w = g.scope(f"model.layers.{last}" if gguf else "model.mtp.layers.0")
    if not has_layer(checkpoint, last, w.prefix):
        return False
    if gguf:
        g.find = partial(find_gguf, checkpoint, HEAD)
    c = MimoConfig.draft(checkpoint)
    g.context(c.context)
    embedding = g.w("model.embed_tokens.weight", rows=c.vocab)
    x = draft_input(g, embedding, w["enorm.weight"], w["hnorm.weight"], w["eh_proj.weight"], c.eps)
    h = g.rms_norm(x, w["input_layernorm.weight"], c.eps)
    x = x + attend(g, checkpoint, h, w.scope("self_attn"), c, c.attention[0], last)
    x = x + gated_mlp(g, g.rms_norm(x, w["pre_mlp_layernorm.weight"], c.eps), w.scope("mlp"))
    x = g.rms_norm(x, w["final_layernorm.weight"], c.eps)
    g.logits(g.linear(x, embedding if c.tied else g.w("lm_head.weight")))
    return True
