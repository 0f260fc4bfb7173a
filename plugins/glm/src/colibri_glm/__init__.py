"""GLM-5.2, GLM-5.3 and GLM-5.3-Flash."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from colibri import hookimpl
from colibri.chat.conversation import Conversation, TurnOptions
from colibri.chat.output import OutputFormat
from colibri.chat.prompt import Prompt
from colibri.chat.tools import active_tools
from colibri.family import FAMILY_API, Sampling, Stops, TokenizerSpec, Variant

from . import output, prompt
from .variants import VARIANTS, variant_of

if TYPE_CHECKING:
    from colibri.compute.checkpoint import Checkpoint
    from colibri.compute.graph import Graph
    from colibri.hookspecs import FamilyRegistrar

#: The markers of the turns that are not the model's: where one begins, the model's turn has ended.
_ROLES = ("<|user|>", "<|observation|>")

#: How text is split into words, by GGUF's labels for it.
_SPLITS = dict.fromkeys(
    ("glm4", "glm5"),
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)


class Glm:
    """GLM-5.2 and GLM-5.3."""

    name = "glm"
    api = FAMILY_API

    def variants(self) -> Sequence[Variant]:
        return VARIANTS

    def variant_for(self, checkpoint: Checkpoint) -> Variant | None:
        return variant_of(checkpoint)

    def tokenizer(self, checkpoint: Checkpoint) -> TokenizerSpec:
        return TokenizerSpec(str(checkpoint.beside("tokenizer.json")), splits=_SPLITS, whole=True)

    def sampling(self, variant: Variant, options: TurnOptions) -> Sampling:
        return Sampling(temperature=1.0, top_p=0.95)

    def render(self, variant: Variant, conversation: Conversation, options: TurnOptions) -> Prompt:
        return prompt.render(prompt.TEMPLATES[variant.name], conversation, options)

    def output(self, variant: Variant, conversation: Conversation, options: TurnOptions) -> OutputFormat:
        return output.answer_format(active_tools(conversation, options))

    def stops(self, variant: Variant, options: TurnOptions) -> Stops:
        return Stops(specials=("<|endoftext|>",), texts=_ROLES, patient=True)

    def graph(self, checkpoint: Checkpoint, g: Graph) -> None:
        from .graph import build_graph

        build_graph(checkpoint, g)

    def draft(self, checkpoint: Checkpoint, g: Graph) -> bool:
        from .graph import build_draft

        return build_draft(checkpoint, g)


@hookimpl
def register_families(register: FamilyRegistrar) -> None:
    register(Glm())
