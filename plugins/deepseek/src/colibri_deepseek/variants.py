"""The models of this family, and how a checkpoint says which it is."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from msgspec.structs import replace

from colibri.compute.gguf_names import model_type
from colibri.family import Capabilities, Variant

from .gguf import ARCHITECTURES
from .markup import DSML

if TYPE_CHECKING:
    from colibri.compute.checkpoint import Checkpoint

_CHAT = Capabilities(thinking="optional", continuation=True, drafts="mtp")
_TOOLS = replace(_CHAT, tools="native", tool_choice="narrow", strict_tools=True)

V4 = Variant("deepseek-v4", "DeepSeek V4", replace(_TOOLS, efforts=("low", "high", "max"), preserve=True))
V3_2 = Variant("deepseek-v3.2", "DeepSeek V3.2", _TOOLS)
V3_2_EXP = Variant("deepseek-v3.2-exp", "DeepSeek V3.2 Exp", _CHAT)

VARIANTS = (V4, V3_2, V3_2_EXP)


def variant_of(checkpoint: Checkpoint) -> Variant | None:
    """Which variant a checkpoint is; None if it is none of these.

    V3.2 and V3.2-Exp have the same configuration. Only the former's vocabulary has the token its calls are written with.
    """
    kind = model_type(checkpoint, ARCHITECTURES)
    if kind != "deepseek_v32":
        return V4 if kind == "deepseek_v4" else None
    if checkpoint.format == "gguf":
        tokens = checkpoint.metadata.get("tokenizer.ggml.tokens")
        return V3_2_EXP if isinstance(tokens, list) and DSML.token not in tokens else V3_2
    with contextlib.suppress(OSError):
        if DSML.token.encode() not in (checkpoint.path / "tokenizer.json").read_bytes():
            return V3_2_EXP
    return V3_2
