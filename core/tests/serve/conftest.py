"""A family, a vocabulary of bytes and a service on a scripted engine: everything of serving but a model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from colibri.chat.calls import JsonCalls
from colibri.chat.conversation import Conversation, TextPart, Turn, TurnOptions
from colibri.chat.output import OutputFormat
from colibri.chat.prompt import Prompt, Special, prompt
from colibri.chat.tokenizer import Tokenizer
from colibri.family import Capabilities, Sampling, Stops, TokenizerSpec, Variant
from colibri.serve.preparation import Model
from colibri.serve.service import ModelService
from colibri.settings import Settings
from colibri.testing.runtime import ScriptedEngine, ScriptedRuntime, replying

SPECIALS = ("<|user|>", "<|assistant|>", "<|end|>", "<think>", "</think>", "<call>", "</call>")
END = 256 + SPECIALS.index("<|end|>")
VOCAB = 256 + len(SPECIALS)

ALL = Capabilities(
    tools="native", tool_choice="prompt", strict_tools=True, thinking="optional", efforts=("low", "high"), continuation=True
)


class Family:
    """Turns between control tokens; reasoning in <think>, calls in <call>."""

    name = "fake"
    api = 1

    def __init__(self, capabilities: Capabilities = ALL) -> None:
        self.variant = Variant("fake-1", "Fake 1", capabilities)
        self.rendered: list[tuple[Conversation, TurnOptions]] = []

    def variants(self) -> Sequence[Variant]:
        return (self.variant,)

    def variant_for(self, checkpoint: Any) -> Variant | None:
        return self.variant

    def tokenizer(self, checkpoint: Any) -> TokenizerSpec:
        raise NotImplementedError

    def sampling(self, variant: Variant, options: TurnOptions) -> Sampling:
        return Sampling(temperature=0.25 if options.thinking else 0.5)

    def render(self, variant: Variant, conversation: Conversation, options: TurnOptions) -> Prompt:
        self.rendered.append((conversation, options))
        pieces: list[Any] = []
        for turn in conversation.turns:
            role = Special("<|assistant|>" if turn.role == "assistant" else "<|user|>")
            pieces += [role, turn.spoken or turn.text, Special("<|end|>")]
        if options.cue == "continue":
            pieces.pop()
        elif options.cue == "new":
            pieces.append(Special("<|assistant|>"))
        return prompt(pieces)

    def output(self, variant: Variant, conversation: Conversation, options: TurnOptions) -> OutputFormat:
        return OutputFormat(
            moves={
                ("content", "<think>"): ("reasoning",),
                ("reasoning", "</think>"): ("content",),
                ("content", "<call>"): ("call", "open"),
                ("call", "</call>"): ("content", "close"),
            },
            kinds={"call": "body"},
            calls=JsonCalls(),
        )

    def stops(self, variant: Variant, options: TurnOptions) -> Stops:
        return Stops(("<|end|>",))

    def graph(self, checkpoint: Any, g: Any) -> None:
        raise NotImplementedError


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """One token a byte, and the control tokens behind them."""
    return byte_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def byte_tokenizer(folder: Path) -> Tokenizer:
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    letters = {byte: chr(byte) for byte in plain} | {byte: chr(0x100 + n) for n, byte in enumerate(others)}
    data = {
        "version": "1.0",
        "added_tokens": [
            {"id": 256 + n, "content": word, "special": True, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False}
            for n, word in enumerate(SPECIALS)
        ],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": {letters[byte]: byte for byte in range(256)}, "merges": []},
    }  # fmt: skip
    file = folder / "tokenizer.json"
    file.write_text(json.dumps(data))
    return Tokenizer.load(TokenizerSpec(str(file)))


def spelled(text: str) -> list[int]:
    """The ids of an output: control tokens by their spelling, bytes elsewhere."""
    ids: list[int] = []
    while text:
        for n, word in enumerate(SPECIALS):
            if text.startswith(word):
                ids.append(256 + n)
                text = text[len(word) :]
                break
        else:
            ids += text[0].encode()
            text = text[1:]
    return ids


def engine_saying(text: str, *, ready: bool = True, **sizes: Any) -> ScriptedEngine:
    """An engine that answers every prompt with `text` and then ends the turn."""
    sizes = {"context": 256, "slots": 2, "max_rows": 64, **sizes}
    return ScriptedEngine(ScriptedRuntime(vocab=VOCAB, pick=replying(spelled(text), END), **sizes), chunk=32, ready=ready)


def service_on(
    engine: ScriptedEngine, tokenizer: Tokenizer, family: Family | None = None, *, plugins: Any = None, **settings: Any
) -> ModelService:
    """A service on that engine."""
    family = family or Family()
    values = Settings(**{"kv_slots": engine.runtime.slots, **settings})
    return ModelService(Model(family, family.variant, tokenizer, values), engine, "fake-1", plugins=plugins)


def user(text: str) -> Turn:
    return Turn("user", (TextPart(text),))


def assistant(text: str) -> Turn:
    return Turn("assistant", (TextPart(text),))
