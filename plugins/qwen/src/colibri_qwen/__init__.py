"""The dense Qwen2 and Qwen2.5 models, their Coders included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from colibri import hookimpl
from colibri.chat.conversation import Conversation, TurnOptions
from colibri.chat.output import OutputFormat
from colibri.chat.prompt import Prompt
from colibri.chat.tools import active_tools
from colibri.errors import BadRequest, CheckpointError
from colibri.family import FAMILY_API, Sampling, Stops, TokenizerSpec, Variant

from . import checkpoint as files
from . import output, prompt
from .variants import QWEN2, QWEN2_5_CODER, VARIANTS, variant_of

if TYPE_CHECKING:
    from colibri.compute.checkpoint import Checkpoint
    from colibri.compute.graph import Graph
    from colibri.hookspecs import FamilyRegistrar

#: How GGUF's label "qwen2" splits text into words.
_SPLITS = {
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
}


class Qwen:
    """Qwen2 and Qwen2.5."""

    name = "qwen"
    api = FAMILY_API

    def variants(self) -> Sequence[Variant]:
        return VARIANTS

    def variant_for(self, checkpoint: Checkpoint) -> Variant | None:
        return variant_of(checkpoint) if files.matches(checkpoint) else None

    def tokenizer(self, checkpoint: Checkpoint) -> TokenizerSpec:
        if checkpoint.format == "gguf":
            return TokenizerSpec(str(checkpoint.path), splits=_SPLITS, nfc=True)
        file = checkpoint.path / "tokenizer.json"
        if not file.is_file():
            raise CheckpointError("the model has no tokenizer.json", file=checkpoint.path)
        return TokenizerSpec(str(file))

    def sampling(self, variant: Variant, options: TurnOptions) -> Sampling:
        return Sampling(temperature=0.7, top_p=0.8, top_k=20)

    def render(self, variant: Variant, conversation: Conversation, options: TurnOptions) -> Prompt:
        if variant != QWEN2:
            return prompt.render(conversation, options, persona=prompt.PERSONA)
        if conversation.tools or any(turn.calls or turn.role == "tool" for turn in conversation.turns):
            raise BadRequest("Qwen2 has no words for tools, calls and results.", param="messages")
        return prompt.render(conversation, options, persona=prompt.PERSONA_2)

    def output(self, variant: Variant, conversation: Conversation, options: TurnOptions) -> OutputFormat:
        tools = () if variant == QWEN2 else active_tools(conversation, options)
        return output.answer_format(tools, bare=variant == QWEN2_5_CODER)

    def stops(self, variant: Variant, options: TurnOptions) -> Stops:
        return Stops(specials=("<|im_end|>", "<|endoftext|>"))

    def graph(self, checkpoint: Checkpoint, g: Graph) -> None:
        from .graph import build_graph

        build_graph(checkpoint, g)


@hookimpl
def register_families(register: FamilyRegistrar) -> None:
    register(Qwen())
