"""The models of this family, what each claims to do, and how a checkpoint says which it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from colibri.family import Capabilities, Variant

if TYPE_CHECKING:
    from colibri.compute.checkpoint import Checkpoint

CHAT = Variant("heron", "Heron", Capabilities(continuation=True))

#: All of them, as `colibri families` shows them.
VARIANTS = (CHAT,)

#: By the `model_type` of config.json.
_BY_MODEL_TYPE = {"heron": CHAT}


def variant_of(checkpoint: Checkpoint) -> Variant | None:
    """Which model a checkpoint is, None if it is not of this family."""
    return _BY_MODEL_TYPE.get(checkpoint.model_type or "") if checkpoint.format == "safetensors" else None
