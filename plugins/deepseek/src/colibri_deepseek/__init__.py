"""DeepSeek V4 and V3.2."""

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

from . import output, prompt, prompt_v32
from .markup import EOS
from .variants import V3_2_EXP, V4, VARIANTS, variant_of

if TYPE_CHECKING:
    from colibri.compute.checkpoint import Checkpoint
    from colibri.compute.graph import Graph
    from colibri.hookspecs import FamilyRegistrar

#: How text is split into words, by GGUF's labels for it: numbers first, then Chinese and Japanese, then all else.
_SPLITS = dict.fromkeys(
    ("deepseek-v3", "joyai-llm"),
    (
        r"\p{N}{1,3}",
        r"[一-龥぀-ゟ゠-ヿ]+",
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
        r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
)


class DeepSeek:
    """DeepSeek V4 and V3.2."""

    name = "deepseek"
    api = FAMILY_API

    def variants(self) -> Sequence[Variant]:
        return VARIANTS

    def variant_for(self, checkpoint: Checkpoint) -> Variant | None:
        return variant_of(checkpoint)

    def tokenizer(self, checkpoint: Checkpoint) -> TokenizerSpec:
        return TokenizerSpec(str(checkpoint.beside("tokenizer.json")), splits=_SPLITS)

    def sampling(self, variant: Variant, options: TurnOptions) -> Sampling:
        return Sampling(temperature=1.0, top_p=1.0 if variant == V4 else 0.95)

    def render(self, variant: Variant, conversation: Conversation, options: TurnOptions) -> Prompt:
        if variant == V4:
            return prompt.render(conversation, options)
        if variant == V3_2_EXP and (
            active_tools(conversation, options) or any(t.calls or t.role == "tool" for t in conversation.turns)
        ):
            raise BadRequest("DeepSeek V3.2 Exp is served without tools, calls and results.", param="messages")
        return prompt_v32.render(conversation, options)

    def output(self, variant: Variant, conversation: Conversation, options: TurnOptions) -> OutputFormat:
        block = prompt.BLOCK if variant == V4 else prompt_v32.BLOCK
        return output.answer_format(active_tools(conversation, options), block)

    def stops(self, variant: Variant, options: TurnOptions) -> Stops:
        return Stops(specials=(EOS.token,))

    def graph(self, checkpoint: Checkpoint, g: Graph) -> None:
        from .graph import build_graph

        build_graph(checkpoint, g)

    def draft(self, checkpoint: Checkpoint, g: Graph) -> bool:
        from .draft import build_draft

        return build_draft(checkpoint, g)


@hookimpl
def register_families(register: FamilyRegistrar) -> None:
    register(DeepSeek())
