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

#: The builders of the model and of its draft head, by `model_type`: that of the whole model, or that of its language model
#: alone.
_HYBRID, _FLASH_NEXT = (build_hybrid, build_hybrid_draft), (build_flash_next, build_flash_next_draft)
_BUILDERS = {
    "qwen2": (build_dense, None),
    **dict.fromkeys(("qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"), _HYBRID),
    **dict.fromkeys(("qwen4_exp", "qwen4_exp_text"), _FLASH_NEXT),
}


def build_graph(checkpoint: Checkpoint, g: Graph) -> None:
    """Declare the forward pass of `checkpoint` on `g`. Raises CheckpointError for a file that does not fit its config."""
    build, _ = _BUILDERS.get(model_type(checkpoint, ARCHITECTURES), (None, None))
    if build is None:
        raise CheckpointError(f"its model_type is none of {', '.join(_BUILDERS)}", file=checkpoint.path)
    build(checkpoint, g)


def build_draft(checkpoint: Checkpoint, g: Graph) -> bool:
    """Declare the draft head of `checkpoint` on `g`; false where there is none."""
    _, build = _BUILDERS.get(model_type(checkpoint, ARCHITECTURES), (None, None))
    return build is not None and build(checkpoint, g)
