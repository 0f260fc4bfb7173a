"""OLMoE-1B-7B, the open mixture-of-experts model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from colibri import hookimpl
from colibri.chat.conversation import Conversation, TurnOptions
from colibri.chat.output import OutputFormat
from colibri.chat.prompt import Prompt
from colibri.chat.tools import active_tools
from colibri.family import FAMILY_API, Capabilities, Sampling, Stops, TokenizerSpec, Variant

from . import checkpoint as files
from . import output, prompt

if TYPE_CHECKING:
    from colibri.compute.checkpoint import Checkpoint
    from colibri.compute.graph import Graph
    from colibri.hookspecs import FamilyRegistrar

OLMOE = Variant("olmoe", "OLMoE-1B-7B", Capabilities(tools="fallback", tool_choice="narrow", continuation=True))

#: How GGUF's label "olmo" splits text into words.
_SPLITS = {"olmo": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"}

#: Two vocabularies are about, which differ in what they call this token.
_SPECIALS = {prompt.EOS.token: prompt.EOS_ID}


class Olmoe:
    """OLMoE-1B-7B. It has no tool format: with the fallback, tools are described in the system text."""

    name = "olmoe"
    api = FAMILY_API

    def variants(self) -> Sequence[Variant]:
        return (OLMOE,)

    def variant_for(self, checkpoint: Checkpoint) -> Variant | None:
        return OLMOE if files.matches(checkpoint) else None

    def tokenizer(self, checkpoint: Checkpoint) -> TokenizerSpec:
        return TokenizerSpec(str(checkpoint.beside("tokenizer.json")), specials=_SPECIALS, splits=_SPLITS, nfc=True)

    def sampling(self, variant: Variant, options: TurnOptions) -> Sampling:
        """Its makers recommend nothing; these are the usual values for chat."""
        return Sampling(temperature=0.7, top_p=0.9)

    def render(self, variant: Variant, conversation: Conversation, options: TurnOptions) -> Prompt:
        return prompt.render(conversation, options)

    def output(self, variant: Variant, conversation: Conversation, options: TurnOptions) -> OutputFormat:
        return output.answer_format(active_tools(conversation, options) if options.tool_fallback else ())

    def stops(self, variant: Variant, options: TurnOptions) -> Stops:
        return Stops(specials=(prompt.EOS.token,))

    def graph(self, checkpoint: Checkpoint, g: Graph) -> None:
        from .graph import build_graph

        build_graph(checkpoint, g)


@hookimpl
def register_families(register: FamilyRegistrar) -> None:
    register(Olmoe())
