"""The forward pass of every model of this family."""

from __future__ import annotations

from colibri.compute.checkpoint import Checkpoint
from colibri.compute.gguf_names import model_type
from colibri.compute.graph import Graph
from colibri.errors import CheckpointError

from .dense import build_dense
from .flash_next import build_flash_next, build_flash_next_draft
from .gguf import ARCHITECTURES
from .hybrid import build_hybrid, build_hybrid_draft

#: By `model_type`: that of the whole model, or that of its language model alone.
_BUILDERS = {
    "qwen2": build_dense,
    "qwen3_next": build_hybrid,
    "qwen3_5": build_hybrid,
    "qwen3_5_text": build_hybrid,
    "qwen3_5_moe": build_hybrid,
    "qwen3_5_moe_text": build_hybrid,
    "qwen4_exp": build_flash_next,
    "qwen4_exp_text": build_flash_next,
}

#: The same for draft heads.
_DRAFTS = {
    kind: build_flash_next_draft if build is build_flash_next else build_hybrid_draft
    for kind, build in _BUILDERS.items()
    if build is not build_dense
}


def build_graph(checkpoint: Checkpoint, g: Graph) -> None:
    """Declare the forward pass of `checkpoint` on `g`. Raises CheckpointError for a file that does not fit its config."""
    build = _BUILDERS.get(model_type(checkpoint, ARCHITECTURES))
    if build is None:
        raise CheckpointError(f"its model_type is none of {', '.join(_BUILDERS)}", file=checkpoint.path)
    build(checkpoint, g)


def build_draft(checkpoint: Checkpoint, g: Graph) -> bool:
    """Declare the draft head of `checkpoint` on `g`; false where there is none."""
    build = _DRAFTS.get(model_type(checkpoint, ARCHITECTURES))
    return build is not None and build(checkpoint, g)
