"""The models of this family, and how a checkpoint says which it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from colibri.family import Capabilities, Variant

from .audio import BANDS, LEVELS

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

_DRAFTS = replace(_CLAIMS, drafts="mtp")

INKLING = Variant("inkling", "Inkling", replace(_DRAFTS, inputs=("text", "audio")))
INKLING_2_SMALL = Variant("inkling-2-small", "Inkling-2-Small", _CLAIMS)
INKLING_2_MINI = Variant("inkling-2-mini", "Inkling-2-Mini", _CLAIMS)

VARIANTS = (INKLING, INKLING_2_SMALL, INKLING_2_MINI)

#: What a model adds up to hear, one row for each level of each band.
AUDIO_TABLE = "model.audio.encoder.weight"

#: Inkling without the part that hears.
_DEAF = replace(INKLING, capabilities=_DRAFTS)

_BY_MODEL_TYPE = {
    "inkling_mm_model": INKLING,
    "inkling_text": INKLING,
    "inkling2": INKLING_2_SMALL,
    "inkling2_text": INKLING_2_SMALL,
    "inkling2_loop": INKLING_2_MINI,
    "inkling2_loop_text": INKLING_2_MINI,
}


def variant_of(checkpoint: Checkpoint) -> Variant | None:
    """Which of the models a checkpoint is, or None. Inkling takes sounds only where it has what hears them."""
    if checkpoint.format != "safetensors":
        return None
    variant = _BY_MODEL_TYPE.get(checkpoint.model_type or "")
    return _DEAF if variant == INKLING and not _hears(checkpoint) else variant


def _hears(checkpoint: Checkpoint) -> bool:
    """Whether the model knows the bands and levels that sounds are made of here."""
    config = checkpoint.config.get("audio_config")
    if not isinstance(config, dict) or AUDIO_TABLE not in checkpoint.tensors:
        return False
    bands, levels = config.get("n_mel_bins"), config.get("mel_vocab_size")
    return bands in (None, BANDS) and (levels is None or (isinstance(levels, int) and levels >= LEVELS))
