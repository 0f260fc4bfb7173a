"""Xiaomi's MiMo-V2 models: V2.6, V2.5 and V2-Flash."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from colibri import hookimpl
from colibri.chat.conversation import Conversation, TurnOptions
from colibri.chat.output import OutputFormat
from colibri.chat.prompt import Prompt
from colibri.chat.tools import active_tools
from colibri.errors import BadRequest
from colibri.family import FAMILY_API, Sampling, Stops, TokenizerSpec, Variant

from . import output, prompt
from .variants import MIMO_V2_6, MIMO_V2_FLASH, PERSONA, VARIANTS, variant_of

if TYPE_CHECKING:
    from colibri.compute.checkpoint import Checkpoint
    from colibri.compute.graph import Graph
    from colibri.hookspecs import FamilyRegistrar

#: How text is split into words, by GGUF's label for it.
_SPLITS = {
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
}


class Mimo:
    """MiMo-V2: mixtures of experts that see most of the text through a small window."""

    name = "mimo"
    api = FAMILY_API

    def variants(self) -> Sequence[Variant]:
        return VARIANTS

    def variant_for(self, checkpoint: Checkpoint) -> Variant | None:
        return variant_of(checkpoint)

    def tokenizer(self, checkpoint: Checkpoint) -> TokenizerSpec:
        return TokenizerSpec(str(checkpoint.beside("tokenizer.json")), splits=_SPLITS, nfc=True)

    def sampling(self, variant: Variant, options: TurnOptions) -> Sampling:
        return Sampling(temperature=0.8 if variant == MIMO_V2_FLASH else 1.0, top_p=0.95)

    def render(self, variant: Variant, conversation: Conversation, options: TurnOptions) -> Prompt:
        thinks = variant.capabilities.thinks
        if variant == MIMO_V2_6:
            return prompt.render(conversation, options, thinks=thinks, persona=None)
        if active_tools(conversation, options) or any(turn.calls or turn.role == "tool" for turn in conversation.turns):
            raise BadRequest(f"{variant.title} has no words for tools, calls and results here.", param="messages")
        return prompt.render(conversation, options, thinks=thinks, persona=PERSONA)

    def output(self, variant: Variant, conversation: Conversation, options: TurnOptions) -> OutputFormat:
        return output.answer_format(active_tools(conversation, options) if variant == MIMO_V2_6 else ())

    def stops(self, variant: Variant, options: TurnOptions) -> Stops:
        return Stops(specials=("<|im_end|>", "<|endoftext|>"))

    def graph(self, checkpoint: Checkpoint, g: Graph) -> None:
        from .graph import build_graph

        build_graph(checkpoint, g)

    def draft(self, checkpoint: Checkpoint, g: Graph) -> bool:
        from .draft import build_draft

        return build_draft(checkpoint, g)


@hookimpl
def register_families(register: FamilyRegistrar) -> None:
    register(Mimo())
