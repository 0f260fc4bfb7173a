"""The models of this family, and how a checkpoint says which it is."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from colibri.family import Capabilities, Variant

if TYPE_CHECKING:
    from colibri.compute.checkpoint import Checkpoint

_TEXT = Capabilities(continuation=True)
_TOOLS = Capabilities(tools="native", tool_choice="narrow", strict_tools=True, continuation=True)

QWEN2 = Variant("qwen2", "Qwen2", _TEXT)
QWEN2_5 = Variant("qwen2.5", "Qwen2.5", _TOOLS)
QWEN2_5_CODER = Variant("qwen2.5-coder", "Qwen2.5-Coder", _TOOLS)

VARIANTS = (QWEN2, QWEN2_5, QWEN2_5_CODER)

#: The token that came with Qwen2.5.
_CALL = "<tool_call>"


def variant_of(checkpoint: Checkpoint) -> Variant:
    """Which of the three a checkpoint of theirs is.

    A vocabulary without a token for calls is Qwen2's. Metadata of GGUF files name the Coder; the files of safetensors
    models do not, so these are taken for one: all that sets the Coder apart is that calls without tags are understood
    as well.
    """
    if checkpoint.format == "gguf":
        tokens = checkpoint.metadata.get("tokenizer.ggml.tokens")
        if isinstance(tokens, list) and _CALL not in tokens:
            return QWEN2
        names = (checkpoint.metadata.get(f"general.{key}") for key in ("basename", "name"))
        return QWEN2_5_CODER if any("coder" in str(name).lower() for name in names) else QWEN2_5
    with contextlib.suppress(OSError):
        if f'"{_CALL}"'.encode() not in (checkpoint.path / "tokenizer.json").read_bytes():
            return QWEN2
    return QWEN2_5_CODER
