"""A plugin of one file: a family whose model is one layer of attention over bytes."""

from __future__ import annotations

from typing import Any

from colibri import hookimpl
from colibri.chat.output import OutputFormat
from colibri.chat.prompt import Special, prompt
from colibri.family import Capabilities, Sampling, Stops, TokenizerSpec, Variant

TINY = Variant("tiny", "Tiny", Capabilities())


class Tiny:
    name = "tiny"
    api = 1

    def variants(self) -> tuple[Variant, ...]:
        return (TINY,)

    def variant_for(self, checkpoint: Any) -> Variant | None:
        return TINY if checkpoint.model_type == "tiny" else None

    def tokenizer(self, checkpoint: Any) -> TokenizerSpec:
        return TokenizerSpec(str(checkpoint.path / "tokenizer.json"))

    def sampling(self, variant: Variant, options: Any) -> Sampling:
        return Sampling()

    def render(self, variant: Variant, conversation: Any, options: Any) -> Any:
        turns = [piece for turn in conversation.turns for piece in (Special("<|user|>"), turn.text, Special("<|end|>"))]
        return prompt([*turns, Special("<|assistant|>")])

    def output(self, variant: Variant, conversation: Any, options: Any) -> OutputFormat:
        return OutputFormat()

    def stops(self, variant: Variant, options: Any) -> Stops:
        return Stops(("<|end|>",))

    def graph(self, checkpoint: Any, g: Any) -> None:
        g.context(128)
        x = g.embed(g.tokens, g.w("embed"))
        q, k, v = (g.linear(x, g.w(name)) for name in "qkv")
        x = x + g.linear(g.attention(q, k, v, state=g.kv(0, 1, 16)), g.w("o"))
        g.logits(g.linear(x, g.w("head")))


@hookimpl
def register_families(register: Any) -> None:
    register(Tiny())
