"""The models of this family, and how a checkpoint says which it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from colibri.family import Capabilities, Variant

if TYPE_CHECKING:
    from colibri.compute.checkpoint import Checkpoint

_CLAIMS = Capabilities(
    tools="native",
    tool_choice="narrow",
    strict_tools=True,
    thinking="optional",
    efforts=("minimal", "low", "medium", "high", "xhigh", "max"),
    preserve=True,
    continuation=True,
)

INKLING = Variant("inkling", "Inkling", replace(_CLAIMS, inputs=("text", "audio")))
INKLING_2_SMALL = Variant("inkling-2-small", "Inkling-2-Small", _CLAIMS)
INKLING_2_MINI = Variant("inkling-2-mini", "Inkling-2-Mini", _CLAIMS)

VARIANTS = (INKLING, INKLING_2_SMALL, INKLING_2_MINI)

#: Inkling without the part that hears.
_DEAF = replace(INKLING, capabilities=_CLAIMS)

_BY_MODEL_TYPE = {
    "inkling_mm_model": INKLING,
    "inkling_text": INKLING,
    "inkling2": INKLING_2_SMALL,
    "inkling2_text": INKLING_2_SMALL,
    "inkling2_loop": INKLING_2_MINI,
    "inkling2_loop_text": INKLING_2_MINI,
}


def variant_of(checkpoint: Checkpoint) -> Variant | None:
    """Which of the models a checkpoint is, or None. Inkling takes sounds only where its configuration describes how."""
    if checkpoint.format != "safetensors":
        return None
    variant = _BY_MODEL_TYPE.get(checkpoint.model_type or "")
    return _DEAF if variant == INKLING and not checkpoint.config.get("audio_config") else variant
