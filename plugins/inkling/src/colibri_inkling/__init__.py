"""Inkling and Inkling-2, mixture-of-experts models that think as much as they are told to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from colibri import hookimpl
from colibri.chat.conversation import Conversation, MediaPart, TurnOptions
from colibri.chat.output import OutputFormat
from colibri.chat.prompt import Prompt
from colibri.chat.tools import active_tools
from colibri.family import FAMILY_API, Sampling, Stops, TokenizerSpec, Variant

from . import audio, output, prompt
from .variants import VARIANTS, variant_of

if TYPE_CHECKING:
    from colibri.compute.checkpoint import Checkpoint
    from colibri.compute.graph import Graph
    from colibri.hookspecs import FamilyRegistrar


class Inkling:
    """Inkling, Inkling-2-Small and Inkling-2-Mini, which share one chat format."""

    name = "inkling"
    api = FAMILY_API

    def variants(self) -> Sequence[Variant]:
        return VARIANTS

    def variant_for(self, checkpoint: Checkpoint) -> Variant | None:
        return variant_of(checkpoint)

    def tokenizer(self, checkpoint: Checkpoint) -> TokenizerSpec:
        return TokenizerSpec(str(checkpoint.beside("tokenizer.json")))

    def sampling(self, variant: Variant, options: TurnOptions) -> Sampling:
        """Its makers recommend nothing; these are the usual values for models that think."""
        return Sampling(temperature=1.0, top_p=0.95)

    def render(self, variant: Variant, conversation: Conversation, options: TurnOptions) -> Prompt:
        return prompt.render(conversation, options)

    def encode(self, variant: Variant, part: MediaPart, param: str, room: int) -> Sequence[bytes]:
        return audio.frames(part.data, param, room)

    def output(self, variant: Variant, conversation: Conversation, options: TurnOptions) -> OutputFormat:
        return output.WITH_CALLS if active_tools(conversation, options) else output.WITHOUT_CALLS

    def stops(self, variant: Variant, options: TurnOptions) -> Stops:
        return Stops(specials=(prompt.END_SAMPLING.token,))

    def graph(self, checkpoint: Checkpoint, g: Graph) -> None:
        from .graph import build_graph

        build_graph(checkpoint, g)

    def draft(self, checkpoint: Checkpoint, g: Graph) -> bool:
        from .draft import build_draft

        return build_draft(checkpoint, g)


@hookimpl
def register_families(register: FamilyRegistrar) -> None:
    register(Inkling())
