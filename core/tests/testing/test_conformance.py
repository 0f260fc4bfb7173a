"""The kit, on families that no plugin of ours brings: those of the handbook for plugin authors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from colibri.chat.calls import Part
from colibri.chat.conversation import Conversation, ToolCall, Turn, TurnOptions
from colibri.chat.output import OutputFormat, OutputParser
from colibri.chat.prompt import Piece, Prompt, Special, prompt
from colibri.chat.tools import DEMAND, active_tools, demands_call
from colibri.compute.checkpoint import open_checkpoint
from colibri.compute.load import declare
from colibri.family import FAMILY_API, Capabilities, Sampling, Stops, TokenizerSpec, Variant
from colibri.testing.checkpoints import seeded_weights, write_checkpoint
from colibri.testing.conformance import FamilyConformance, check_events

DOCS = (Path(__file__).parents[3] / "docs" / "plugins.md").read_text(encoding="utf-8")


def documented(word: str) -> Any:
    """The module that the handbook's one block of code with `word` makes."""
    [code] = [block for block in re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL) if word in block]
    module = ModuleType("documented")
    exec(code, vars(module))
    return module


PLAIN, SYNTAX = documented("register_families"), documented("HeronCalls")
TURN, END, THINK, THOUGHT = map(Special, ("<|turn|>", "<|end|>", "<think>", "</think>"))


class TestDocumented(FamilyConformance):
    """The plugin of the handbook."""

    plugin = PLAIN
    family = "heron"


class TypedCalls(Struct, frozen=True):
    """The calls of the handbook, with values read by the tools' schemas."""

    types: dict[str, dict[str, str]]

    def reader(self, repair: bool) -> TypedCall:
        return TypedCall(self.types)


class TypedCall:
    def __init__(self, types: dict[str, dict[str, str]]) -> None:
        self.types, self.name, self.key, self.text = types, "", "", ""
        self.arguments: dict[str, Any] = {}

    def read(self, state: str, text: str) -> tuple[int, list[Part]]:
        self.text += text
        return len(text), []

    def act(self, action: str) -> list[Part]:
        text, self.text = self.text, ""
        if action == "named":
            self.name = text
            return [Part("tool_start", text)]
        if action == "keyed":
            self.key = text
            return []
        typed = self.types.get(self.name, {}).get(self.key, "string") != "string"
        try:
            self.arguments[self.key] = json.loads(text) if typed else text
        except ValueError:
            self.arguments[self.key] = text
        self.key = ""
        return []

    def close(self, marked: bool) -> list[Part]:
        if not marked or not self.name or self.key:
            return [Part("tool_cut")]
        return [Part("tool_args", json.dumps(self.arguments)), Part("tool_end")]


class Heron:
    """A family that thinks and has a tool format without types."""

    name = "heron-2"
    api = FAMILY_API

    def variants(self) -> Sequence[Variant]:
        claims = Capabilities(tools="native", tool_choice="narrow", thinking="optional", continuation=True)
        return (Variant("heron-2", "Heron 2", claims),)

    def variant_for(self, checkpoint: Any) -> Variant | None:
        return None

    def tokenizer(self, checkpoint: Any) -> TokenizerSpec:
        return TokenizerSpec("tokenizer.json")

    def sampling(self, variant: Variant, options: TurnOptions) -> Sampling:
        return Sampling()

    def render(self, variant: Variant, conversation: Conversation, options: TurnOptions) -> Prompt:
        return prompt(self.pieces(conversation, options))

    def pieces(self, conversation: Conversation, options: TurnOptions) -> Iterator[Piece | str]:
        cue: list[Piece | str] = [TURN, "assistant\n", THINK, *[THOUGHT] * (options.thinking is False)]
        for tool in active_tools(conversation, options):
            yield f"{json.dumps(tool.declaration)}\n"
        if demands_call(options):
            yield DEMAND
        for index, turn in enumerate(conversation.turns):
            opened = options.cue == "continue" and index == len(conversation.turns) - 1
            yield from cue if turn.role == "assistant" else (TURN, f"{turn.role}\n")
            if turn.spoken is not None and not opened:
                yield turn.spoken
            else:
                yield from self.said(turn, options)
            if not opened:
                yield END
        if options.cue == "new":
            yield from cue

    def said(self, turn: Turn, options: TurnOptions) -> Iterator[Piece | str]:
        if turn.role == "assistant" and options.thinking is not False:
            yield turn.reasoning or ""
            yield THOUGHT
        yield turn.text
        yield from map(self.written, turn.calls)

    def written(self, call: ToolCall) -> str:
        assert isinstance(call.arguments, dict)
        pairs = call.arguments.items()
        values = [(key, value if isinstance(value, str) else json.dumps(value)) for key, value in pairs]
        inner = "".join(f'<arg key="{key}">{value}</arg>' for key, value in values)
        return f'<call name="{call.name}">{inner}</call>'

    def output(self, variant: Variant, conversation: Conversation, options: TurnOptions) -> OutputFormat:
        schemas = {tool.name: tool.parameters["properties"] for tool in active_tools(conversation, options)}
        types = {name: {key: rule["type"] for key, rule in rules.items()} for name, rules in schemas.items()}
        format: OutputFormat = SYNTAX.FORMAT
        return replace(format, calls=TypedCalls(types))

    def stops(self, variant: Variant, options: TurnOptions) -> Stops:
        return Stops(specials=(END.token,))

    def graph(self, checkpoint: Any, g: Any) -> None:
        raise NotImplementedError


class TestTyped(FamilyConformance):
    """A family that uses most of the contract."""

    plugin = SimpleNamespace(register_families=lambda register: register(Heron()))
    family = "heron-2"
    arguments = "schema"


def test_the_documented_forward_pass(tmp_path: Path) -> None:
    layer = {"q": (8, 8), "k": (8, 8), "v": (8, 8), "o": (8, 8), "gate": (12, 8), "up": (12, 8), "down": (8, 12)}
    shapes: dict[str, tuple[int, ...]] = {"embed.weight": (16, 8), "norm.weight": (8,)}
    for i in range(2):
        shapes |= {f"layers.{i}.{name}.weight": shape for name, shape in {**layer, "norm_1": (8,), "norm_2": (8,)}.items()}
    sizes = {"num_attention_heads": 2, "hidden_size": 8, "num_hidden_layers": 2, "vocab_size": 16}
    config = {"model_type": "heron", "max_position_embeddings": 32, **sizes}
    checkpoint = open_checkpoint(write_checkpoint(tmp_path / "model", config, seeded_weights(shapes, 1)))
    family: Any = SimpleNamespace(name="heron", graph=documented("build_graph").build_graph)
    plan, tensors = declare(family, checkpoint)
    assert (plan.context, plan.vocab, len(plan.states)) == (32, 16, 2)
    assert set(tensors) == set(shapes)


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_the_documented_syntax(size: int) -> None:
    call = '<call name="look"><arg key="place">a "pond"\n</arg><arg key="é">x</arg></call>'
    raw = f'hm\n</think>\n\nWait. {call}<call name="now"></call><call name="look"><arg key="x">cut</ar'
    parser = OutputParser(SYNTAX.FORMAT, SYNTAX.FORMAT.state_after("<think>", TurnOptions()))
    events = [event for at in range(0, len(raw), size) for event in parser.feed(raw[at : at + size])] + parser.finish()
    check_events(events, raw)
    shown: dict[tuple[str, int], str] = {}
    for event in events:
        shown[event.kind, event.call] = shown.get((event.kind, event.call), "") + event.text
    assert shown["reasoning", -1] == "hm"
    assert shown["content", -1] == "Wait."
    assert json.loads(shown["tool_args", 0]) == {"place": 'a "pond"\n', "é": "x"}
    assert (shown["tool_start", 1], shown["tool_args", 1]) == ("now", "{}")
    assert shown["tool_cut", 2] == '<call name="look"><arg key="x">cut</ar'
