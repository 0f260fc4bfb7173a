"""The models of this family, and how a checkpoint says which it is."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from colibri.compute.gguf_names import chat_template, model_type
from colibri.errors import CheckpointError
from colibri.family import Capabilities, Variant

from .gguf import ARCHITECTURES

if TYPE_CHECKING:
    from colibri.compute.checkpoint import Checkpoint

_TEXT = Capabilities(continuation=True)
_TOOLS = Capabilities(tools="native", tool_choice="narrow", strict_tools=True, continuation=True)
_THINKING = msgspec.structs.replace(_TOOLS, thinking="optional", preserve=True, drafts="mtp")
_EFFORTS = msgspec.structs.replace(_THINKING, thinks=True, efforts=("low", "medium", "xhigh"))

QWEN2 = Variant("qwen2", "Qwen2", _TEXT)
QWEN2_5 = Variant("qwen2.5", "Qwen2.5", _TOOLS)
QWEN2_5_CODER = Variant("qwen2.5-coder", "Qwen2.5-Coder", _TOOLS)
QWEN3_NEXT = Variant("qwen3-next", "Qwen3-Next", msgspec.structs.replace(_TOOLS, drafts="mtp"))
QWEN3_6 = Variant("qwen3.6", "Qwen3.6", _THINKING)
QWEN3_8 = Variant("qwen3.8", "Qwen3.8", _EFFORTS)
QWEN3_8_FLASH_NEXT = Variant("qwen3.8-flash-next", "Qwen3.8-Flash-Next", _EFFORTS)

VARIANTS = (QWEN2, QWEN2_5, QWEN2_5_CODER, QWEN3_NEXT, QWEN3_6, QWEN3_8, QWEN3_8_FLASH_NEXT)

#: The token that came with Qwen2.5.
_CALL = "<tool_call>"

#: What only the template of Qwen3.8 says: how much to think where the client does not.
_EFFORT = "reasoning_effort|default('xhigh')"

#: What the templates of Qwen3-Next say if they are not Instruct's, but Thinking's or the Coder's.
_OTHERS = ("<think>", "<function=")


def variant_of(checkpoint: Checkpoint) -> Variant | None:
    """Which model a checkpoint is, None if it is not of this family. Raises CheckpointError for a relative of one whose
    chat format nobody here knows."""
    kind = _KINDS.get(model_type(checkpoint, ARCHITECTURES))
    return None if kind is None else kind(checkpoint)


def _qwen2(checkpoint: Checkpoint) -> Variant:
    """A vocabulary without a token for calls is Qwen2's. Metadata of GGUF files name the Coder; the files of safetensors
    models do not, so these are taken for one: all that sets the Coder apart is that calls without tags are understood
    as well."""
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


def _qwen3_next(checkpoint: Checkpoint) -> Variant:
    template = _template(checkpoint)
    if any(word in template for word in _OTHERS):
        raise CheckpointError("its chat template is not that of Qwen3-Next-Instruct", file=checkpoint.path)
    return QWEN3_NEXT


def _qwen3_5(checkpoint: Checkpoint) -> Variant:
    """Qwen3.6 and Qwen3.8 have one architecture, and their configurations do not tell them apart."""
    return QWEN3_8 if _EFFORT in _template(checkpoint) else QWEN3_6


#: By config.json's `model_type`: that of the whole model, or that of its language model alone.
_KINDS: dict[str, Callable[[Checkpoint], Variant]] = {
    "qwen2": _qwen2,
    "qwen3_next": _qwen3_next,
    "qwen3_5": _qwen3_5,
    "qwen3_5_text": _qwen3_5,
    "qwen3_5_moe": _qwen3_5,
    "qwen3_5_moe_text": _qwen3_5,
    "qwen4_exp": lambda checkpoint: QWEN3_8_FLASH_NEXT,
    "qwen4_exp_text": lambda checkpoint: QWEN3_8_FLASH_NEXT,
}


class _TokenizerConfig(Struct):
    chat_template: Any = None


def _template(checkpoint: Checkpoint) -> str:
    """The chat template, from its own file or, as older models have it, from tokenizer_config.json; "" without either."""
    if checkpoint.format == "gguf":
        return chat_template(checkpoint)
    with contextlib.suppress(OSError):
        return (checkpoint.path / "chat_template.jinja").read_bytes().decode(errors="replace")
    with contextlib.suppress(OSError, msgspec.MsgspecError, RecursionError):
        data = (checkpoint.path / "tokenizer_config.json").read_bytes()
        return str(msgspec.json.decode(data, type=_TokenizerConfig).chat_template)
    return ""
