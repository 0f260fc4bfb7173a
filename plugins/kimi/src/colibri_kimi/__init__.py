"""Kimi K3 and Kimi Linear, the models of the Kimi Delta Attention."""

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

from . import linear, linear_output, output, prompt
from .gguf import ARCHITECTURES
from .variants import BY_MODEL_TYPE, KIMI_K3, VARIANTS

if TYPE_CHECKING:
    from colibri.compute.checkpoint import Checkpoint
    from colibri.compute.graph import Graph
    from colibri.hookspecs import FamilyRegistrar

# How text is split into words: Chinese characters stand apart from other letters, and a change of case may end a word.
_WORD, _CONTRACTION = r"[^\r\n\p{L}\p{N}]?", "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_SPLITS = dict.fromkeys(
    ("tiktoken", "kimi-k2"),
    rf"[\p{{Han}}]+|{_WORD}{_UPPER}*{_LOWER}+{_CONTRACTION}|{_WORD}{_UPPER}+{_LOWER}*{_CONTRACTION}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)


class Kimi:
    """Kimi K3 and Kimi Linear."""

    name = "kimi"
    api = FAMILY_API

    def variants(self) -> Sequence[Variant]:
        return VARIANTS

    def variant_for(self, checkpoint: Checkpoint) -> Variant | None:
        return BY_MODEL_TYPE.get(model_type(checkpoint, ARCHITECTURES))

    def tokenizer(self, checkpoint: Checkpoint) -> TokenizerSpec:
        return TokenizerSpec(str(checkpoint.beside("tokenizer.json", "tiktoken.model")), splits=_SPLITS, whole=True)

    def sampling(self, variant: Variant, options: TurnOptions) -> Sampling:
        return Sampling(temperature=1.0, top_p=0.95) if variant == KIMI_K3 else Sampling(temperature=0.6)

    def render(self, variant: Variant, conversation: Conversation, options: TurnOptions) -> Prompt:
        return prompt.render(conversation, options) if variant == KIMI_K3 else linear.render(conversation, options)

    def output(self, variant: Variant, conversation: Conversation, options: TurnOptions) -> OutputFormat:
        if variant == KIMI_K3:
            return output.answer_format(options)
        return linear_output.answer_format(active_tools(conversation, options))

    def stops(self, variant: Variant, options: TurnOptions) -> Stops:
        return Stops(specials=("<|end_of_msg|>" if variant == KIMI_K3 else "<|im_end|>", "[EOS]"))

    def graph(self, checkpoint: Checkpoint, g: Graph) -> None:
        from .graph import build_graph

        build_graph(checkpoint, g)


@hookimpl
def register_families(register: FamilyRegistrar) -> None:
    register(Kimi())
