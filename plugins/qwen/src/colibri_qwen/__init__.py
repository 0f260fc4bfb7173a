"""The Qwen models: Qwen2 and Qwen2.5, Qwen3-Next, Qwen3.6 and Qwen3.8."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from colibri import hookimpl
from colibri.chat.conversation import Conversation, TurnOptions
from colibri.chat.output import OutputFormat
from colibri.chat.prompt import Prompt
from colibri.chat.tools import active_tools
from colibri.compute.gguf_names import model_type
from colibri.family import FAMILY_API, Sampling, Stops, TokenizerSpec, Variant

from . import instruct, thinking
from .gguf import ARCHITECTURES
from .output import instruct_format, thinking_format
from .variants import (
    QWEN2,
    QWEN2_5,
    QWEN2_5_CODER,
    QWEN3_6,
    QWEN3_8,
    QWEN3_8_FLASH_NEXT,
    QWEN3_NEXT,
    VARIANTS,
    variant_of,
)

if TYPE_CHECKING:
    from colibri.compute.checkpoint import Checkpoint
    from colibri.compute.graph import Graph
    from colibri.hookspecs import FamilyRegistrar

#: How text is split into words, by GGUF's labels for it. Marks belong to words since Qwen3.5.
_SPLITS = {
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen35": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}

#: Models that answer at once, and those that may think before.
_INSTRUCT = {
    QWEN2: instruct.QWEN2,
    QWEN2_5: instruct.QWEN2_5,
    QWEN2_5_CODER: instruct.QWEN2_5,
    QWEN3_NEXT: instruct.QWEN3_NEXT,
}
_THINKING = {QWEN3_6: thinking.QWEN3_6, QWEN3_8: thinking.QWEN3_8, QWEN3_8_FLASH_NEXT: thinking.QWEN3_8}


class Qwen:
    """The Qwen models. Two chat formats are among them: that of models that answer at once, and that of those that think."""

    name = "qwen"
    api = FAMILY_API

    def variants(self) -> Sequence[Variant]:
        return VARIANTS

    def variant_for(self, checkpoint: Checkpoint) -> Variant | None:
        return variant_of(checkpoint)

    def tokenizer(self, checkpoint: Checkpoint) -> TokenizerSpec:
        whole = model_type(checkpoint, ARCHITECTURES) not in ("qwen2", "qwen3_next")
        return TokenizerSpec(str(checkpoint.beside("tokenizer.json")), splits=_SPLITS, nfc=True, whole=whole)

    def sampling(self, variant: Variant, options: TurnOptions) -> Sampling:
        """What the makers recommend; Qwen3.6 has other values for answers without reasoning."""
        if variant in _INSTRUCT or (variant == QWEN3_6 and options.thinking is False):
            return Sampling(temperature=0.7, top_p=0.8, top_k=20)
        return Sampling(temperature=1.0, top_p=0.95, top_k=20)

    def render(self, variant: Variant, conversation: Conversation, options: TurnOptions) -> Prompt:
        if variant in _THINKING:
            return thinking.render(conversation, options, _THINKING[variant])
        return instruct.render(conversation, options, _INSTRUCT[variant])

    def output(self, variant: Variant, conversation: Conversation, options: TurnOptions) -> OutputFormat:
        tools = active_tools(conversation, options)
        if variant in _THINKING:
            return thinking_format(None if options.tool_choice.mode == "none" else tools)
        return instruct_format(tools if variant != QWEN2 else (), bare=variant == QWEN2_5_CODER)

    def stops(self, variant: Variant, options: TurnOptions) -> Stops:
        return Stops(specials=("<|im_end|>", "<|endoftext|>"))

    def graph(self, checkpoint: Checkpoint, g: Graph) -> None:
        from .graph import build_graph

        build_graph(checkpoint, g)

    def draft(self, checkpoint: Checkpoint, g: Graph) -> bool:
        from .graph import build_draft

        return build_draft(checkpoint, g)


@hookimpl
def register_families(register: FamilyRegistrar) -> None:
    register(Qwen())
