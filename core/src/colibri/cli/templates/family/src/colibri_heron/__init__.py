"""Heron models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from colibri import hookimpl
from colibri.chat.conversation import Conversation, TurnOptions
from colibri.chat.output import OutputFormat
from colibri.chat.prompt import Prompt
from colibri.family import FAMILY_API, Sampling, Stops, TokenizerSpec, Variant

from . import output, prompt
from .variants import VARIANTS, variant_of

if TYPE_CHECKING:
    from colibri.compute.checkpoint import Checkpoint
    from colibri.compute.graph import Graph
    from colibri.hookspecs import FamilyRegistrar


class Heron:
    """The family as colibri sees it; `colibri.family.Family` says what each part is for."""

    name = "heron"
    api = FAMILY_API

    def variants(self) -> Sequence[Variant]:
        return VARIANTS

    def variant_for(self, checkpoint: Checkpoint) -> Variant | None:
        return variant_of(checkpoint)

    def tokenizer(self, checkpoint: Checkpoint) -> TokenizerSpec:
        return TokenizerSpec(str(checkpoint.beside("tokenizer.json")))

    def sampling(self, variant: Variant, options: TurnOptions) -> Sampling:
        return Sampling(temperature=0.7, top_p=0.9)

    def render(self, variant: Variant, conversation: Conversation, options: TurnOptions) -> Prompt:
        return prompt.render(conversation, options)

    def output(self, variant: Variant, conversation: Conversation, options: TurnOptions) -> OutputFormat:
        return output.ANSWER

    def stops(self, variant: Variant, options: TurnOptions) -> Stops:
        return Stops(specials=(prompt.END.token,))

    def graph(self, checkpoint: Checkpoint, g: Graph) -> None:
        from .graph import build_graph  # needed only where a model is really opened

        build_graph(checkpoint, g)


@hookimpl
def register_families(register: FamilyRegistrar) -> None:
    register(Heron())
