"""Turns that come back are the ones the model wrote, token for token."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from colibri.chat.conversation import Conversation, TextPart, ToolCall, Turn, TurnOptions
from colibri.chat.events import Event
from colibri.chat.prompt import Spoken
from colibri.chat.tokenizer import Tokenizer
from colibri.family import Stops, Variant
from colibri.serve.recall import Draft, Recall
from colibri.serve.request import GenerationRequest

from .conftest import Family, engine_saying, service_on, spelled, user


def draft(*events: tuple[Any, str] | tuple[Any, str, int], ids: int = 3) -> Draft:
    made = Draft()
    made.ids += range(ids)
    made.answer.read(Event(event[0], event[1], (0, 0), event[2] if len(event) > 2 else -1) for event in events)
    return made


CALL = (("tool_start", "f", 0), ("tool_args", '{"b": 1,', 0), ("tool_args", ' "a": [2]}', 0), ("tool_end", "", 0))


def said(text: str = "", reasoning: str | None = None, *calls: ToolCall, role: Any = "assistant") -> Turn:
    return Turn(role, (TextPart(text),) if text else None, reasoning, calls)


@pytest.mark.parametrize(
    ("made", "turn", "known"),
    [
        (draft(("content", "Hel"), ("content", "lo ")), said("Hello"), True),
        (draft(("content", "Hello")), said("Hello."), False),
        (draft(("content", "Hello")), said("Hello", role="user"), False),
        (draft(*CALL), said("", None, ToolCall("f", {"a": [2], "b": 1}, "any id")), True),
        (draft(*CALL), said("", None, ToolCall("f", {"a": [2], "b": 2})), False),
        (draft(*CALL), said("", None, ToolCall("g", {"a": [2], "b": 1})), False),
        (draft(*CALL), said(), False),
        (draft(*CALL), said("", None, ToolCall("f", "broken")), False),
        (draft(("reasoning", "Hm."), ("content", "Yes")), said("Yes", "Hm."), True),
        # Reasoning that a client does not show to know is not put into its prompt.
        (draft(("reasoning", "Hm."), ("content", "Yes")), said("Yes"), False),
        (draft(("content", "Yes"), ("tool_cut", "<call>{")), said("Yes"), False),
        (draft(("content", "Yes"), ids=0), said("Yes"), False),
    ],
)
def test_a_turn_is_known_by_what_a_client_saw(made: Draft, turn: Turn, known: bool) -> None:
    recall = Recall()
    recall.keep(made, "raw")
    restored = recall.restore(Conversation((user("Hi"), turn))).turns[1]
    assert restored.spoken == (Spoken((0, 1, 2), "raw") if known else None)


def test_memory_is_bounded_and_the_oldest_turns_go() -> None:
    recall = Recall(limit=6)
    for text in "abc":
        recall.keep(draft(("content", text)), text)
        recall.restore(Conversation((said("a"),)))
    recall.keep(draft(("content", "long"), ids=7), "long")
    known = recall.restore(Conversation(tuple(said(text) for text in ("a", "b", "c", "long"))))
    assert [turn.spoken is not None for turn in known.turns] == [True, False, True, False]


def test_a_conversation_that_comes_back_goes_on_where_its_slot_ended(tokenizer: Tokenizer) -> None:
    """Arguments with odd blanks: rendering the call anew would spell it otherwise."""
    answer = '<call>{"name":"f",   "arguments":{ "a" :1}}</call>'

    async def holds() -> None:
        service = service_on(engine_saying(answer), tokenizer)
        first = service.generate(GenerationRequest(conversation=Conversation((user("Hi"),))))
        [_ async for _ in first]
        assert first.finish_reason == "tool_calls"
        turn = said("", None, ToolCall("f", {"a": 1}, "call_1"))
        again = service.generate(GenerationRequest(conversation=Conversation((user("Hi"), turn, user("So?")))))
        [_ async for _ in again]
        assert again.usage.cached == first.usage.prompt + len(spelled(answer))
        other = said("", None, ToolCall("f", {"a": 2}, "call_1"))
        again = service.generate(GenerationRequest(conversation=Conversation((user("Hi"), other, user("So?")))))
        [_ async for _ in again]
        assert again.usage.cached == first.usage.prompt

    asyncio.run(asyncio.wait_for(holds(), 30))


def test_text_behind_a_stop_text_is_not_remembered(tokenizer: Tokenizer) -> None:
    async def holds() -> None:
        service = service_on(engine_saying("one STOP two"), tokenizer)
        first = service.generate(GenerationRequest(conversation=Conversation((user("Hi"),)), stop=("STOP",)))
        [_ async for _ in first]
        turns = (user("Hi"), said("one"), user("So?"))
        again = service.generate(GenerationRequest(conversation=Conversation(turns)))
        [_ async for _ in again]
        assert again.usage.cached == first.usage.prompt + len("one")

    asyncio.run(asyncio.wait_for(holds(), 30))


class Marked(Family):
    """Turns end at the next one's marker."""

    def stops(self, variant: Variant, options: TurnOptions) -> Stops:
        return Stops(specials=("<|end|>",), texts=("<|user|>",), patient=True)


def test_a_turn_that_ends_at_the_marker_of_the_next_one_is_remembered_without_it(tokenizer: Tokenizer) -> None:
    async def holds() -> None:
        service = service_on(engine_saying("<|user|> one<|user|>two"), tokenizer, Marked())
        first = service.generate(GenerationRequest(conversation=Conversation((user("Hi"),))))
        [_ async for _ in first]
        turns = (user("Hi"), said(" one"), user("So?"))
        again = service.generate(GenerationRequest(conversation=Conversation(turns)))
        [_ async for _ in again]
        assert again.usage.cached == first.usage.prompt + len(spelled("<|user|> one"))

    asyncio.run(asyncio.wait_for(holds(), 30))


@pytest.mark.parametrize("depth", [2_000, 100_000])
def test_a_call_nested_beyond_reading_is_not_remembered(depth: int) -> None:
    turn = draft(("tool_start", "f"), ("tool_args", '{"x":' * depth + "1" + "}" * depth), ("tool_end", ""))
    assert turn.key() is None
