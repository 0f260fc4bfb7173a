"""What the family is asked to render, and what becomes of it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from colibri.chat.conversation import Conversation, TextPart, Tool, ToolChoice, Turn, TurnOptions
from colibri.chat.tokenizer import Tokenizer
from colibri.errors import CheckpointError, Refusal
from colibri.family import Capabilities, Sampling, Stops
from colibri.serve.preparation import Model, prepare
from colibri.serve.request import GenerationRequest
from colibri.settings import Settings

from .conftest import ALL, END, Family, assistant, user


def model(tokenizer: Tokenizer, family: Family | None = None, **settings: Any) -> Model:
    family = family or Family()
    return Model(family, family.variant, tokenizer, Settings(**settings))


def asked(*turns: Any, tools: Any = (), **options: Any) -> GenerationRequest:
    return GenerationRequest(conversation=Conversation(turns, tools), options=TurnOptions(**options))


def test_a_turn(tokenizer: Tokenizer) -> None:
    request = GenerationRequest(
        conversation=Conversation((user("Hi"),)), max_tokens=7, sampling=Sampling(0.1, seed=3), slot=2
    )
    prepared = prepare(model(tokenizer), request)
    assert prepared.prompt.text == "<|user|>Hi<|end|><|assistant|>"
    assert (prepared.stop_ids, prepared.max_tokens, prepared.sampling, prepared.slot) == (
        [END], 7, Sampling(0.1, seed=3), 2
    )  # fmt: skip


def test_a_continued_turn_ends_with_the_bytes_that_were_sent(tokenizer: Tokenizer) -> None:
    request = asked(user("Hi"), assistant("I am"))
    assert prepare(model(tokenizer), request).prompt.text == "<|user|>Hi<|end|><|assistant|>I am"
    closed = "<|user|>Hi<|end|><|assistant|>I am<|end|><|assistant|>"
    assert prepare(model(tokenizer, continue_assistant=False), request).prompt.text == closed
    assert prepare(model(tokenizer, Family(Capabilities())), request).prompt.text == closed


def test_developers_are_heard_where_there_is_no_role_for_them(tokenizer: Tokenizer) -> None:
    family = Family()
    turn = Turn("developer", (TextPart("Be brief."),))
    prepare(model(tokenizer, family), asked(turn, user("Hi")))
    assert [turn.role for turn in family.rendered[-1][0].turns] == ["system", "user"]
    family = Family(Capabilities(developer=True))
    prepare(model(tokenizer, family), asked(turn, user("Hi")))
    assert [turn.role for turn in family.rendered[-1][0].turns] == ["developer", "user"]


def test_no_new_turn_where_none_is_asked_for(tokenizer: Tokenizer) -> None:
    request = asked(user("Hi"), assistant("I am "), cue="none")
    assert prepare(model(tokenizer), request).prompt.text == "<|user|>Hi<|end|><|assistant|>I am <|end|>"


@pytest.mark.parametrize(
    ("think", "capabilities", "options", "rendered"),
    [
        (None, ALL, {}, False),
        (None, replace(ALL, thinks=True), {}, True),
        (False, replace(ALL, thinks=True), {}, False),
        (True, ALL, {}, True),
        (False, ALL, {}, False),
        (True, ALL, {"thinking": False}, False),
        (False, ALL, {"effort": "low", "thinking": True}, True),
        (True, Capabilities(), {}, None),
        (False, Capabilities(thinking="always"), {}, None),
    ],
)
def test_the_servers_wish_for_thinking(
    tokenizer: Tokenizer, think: bool | None, capabilities: Capabilities, options: dict[str, Any], rendered: bool | None
) -> None:
    family = Family(capabilities)
    prepare(model(tokenizer, family, think=think), asked(user("Hi"), **options))
    (_, seen), *_ = family.rendered
    assert seen.thinking is rendered


def test_tools_that_may_not_be_called_are_not_shown_to_a_model_without_tools(tokenizer: Tokenizer) -> None:
    family = Family(Capabilities())
    tools = (Tool("weather", {}),)
    prepare(model(tokenizer, family), asked(user("Hi"), tools=tools, tool_choice=ToolChoice("none")))
    assert all(conversation.tools == () for conversation, _ in family.rendered)
    family.rendered.clear()
    with pytest.raises(Refusal):
        prepare(model(tokenizer, family), asked(user("Hi"), tools=tools))
    assert not family.rendered


def test_tool_fallback_is_the_servers_or_the_clients_wish(tokenizer: Tokenizer) -> None:
    family = Family(Capabilities(tools="fallback"))
    request = asked(user("Hi"), tools=(Tool("weather", {}),))
    with pytest.raises(Refusal, match="--tool-fallback"):
        prepare(model(tokenizer, family), request)
    prepare(model(tokenizer, family, tool_fallback=True), request)
    assert family.rendered[0][1].tool_fallback


def test_limits_and_defaults(tokenizer: Tokenizer) -> None:
    it = model(tokenizer, max_tokens=50, temp=0.125)
    assert prepare(it, asked(user("Hi"))).max_tokens == 50
    assert it.sampling(TurnOptions(thinking=True)).temperature == 0.125
    assert model(tokenizer).sampling(TurnOptions(thinking=True)).temperature == 0.25


def test_a_vocabulary_without_the_end_of_turns(tokenizer: Tokenizer) -> None:
    class Stopless(Family):
        def stops(self, variant: Any, options: Any) -> Stops:
            return Stops(("<|end|>", "<|eot|>"))

    with pytest.raises(CheckpointError, match=r"<\|eot\|>"):
        model(tokenizer, Stopless()).stop_ids(TurnOptions())
