"""The models of this family, and how a checkpoint says which it is."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from msgspec.structs import replace

from colibri.compute.gguf_names import chat_template, model_type
from colibri.family import Capabilities, Variant

from .gguf import ARCHITECTURES

if TYPE_CHECKING:
    from colibri.compute.checkpoint import Checkpoint

_CHAT = Capabilities(thinking="optional", preserve=True, continuation=True, developer=True, drafts="mtp")
_THINKS = replace(_CHAT, thinks=True)
_TOOLS = replace(_THINKS, tools="native", tool_choice="narrow", strict_tools=True)

MIMO_V2_FLASH = Variant("mimo-v2-flash", "MiMo-V2-Flash", _CHAT)
MIMO_V2_5 = Variant("mimo-v2.5", "MiMo-V2.5", _THINKS)
MIMO_V2_6 = Variant("mimo-v2.6", "MiMo-V2.6", _TOOLS)

VARIANTS = (MIMO_V2_6, MIMO_V2_5, MIMO_V2_FLASH)

#: The system text that the templates before V2.6 give to a conversation without one.
PERSONA = "You are MiMo, a helpful AI assistant engineered by Xiaomi."

#: Where a checkpoint's template may be, and how much of such a file is read, in bytes.
_TEMPLATES = ("chat_template.jinja", "tokenizer_config.json")
_READ = 4 << 20


def variant_of(checkpoint: Checkpoint) -> Variant | None:
    """Which model a checkpoint is, None if it is not of this family. V2.5 and V2.6 differ in their templates only. GGUF
    files have one architecture for all: in those of V2-Flash, q, k and v are apart."""
    kind = model_type(checkpoint, ARCHITECTURES)
    if kind == "mimo_v2_flash" or (checkpoint.format == "gguf" and "blk.0.attn_q.weight" in checkpoint.tensors):
        return MIMO_V2_FLASH if kind else None
    if kind != "mimo_v2":
        return None
    if checkpoint.format == "gguf":
        return MIMO_V2_5 if PERSONA in chat_template(checkpoint) else MIMO_V2_6
    return MIMO_V2_5 if any(_mentions_persona(checkpoint, name) for name in _TEMPLATES) else MIMO_V2_6


def _mentions_persona(checkpoint: Checkpoint, name: str) -> bool:
    with contextlib.suppress(OSError), (checkpoint.path / name).open("rb") as file:
        return PERSONA.encode() in file.read(_READ)
    return False
