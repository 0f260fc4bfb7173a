"""Sounds in a request: what the family is asked to encode, and what the engine gets."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from colibri.chat.conversation import Conversation, MediaPart, TextPart, Turn, TurnOptions
from colibri.chat.prompt import Media, Prompt, Special, Text, prompt
from colibri.chat.tokenizer import Tokenizer
from colibri.compute.plan import Codes
from colibri.engine.frames import mark_of
from colibri.errors import BadRequest, ColibriError, PluginError
from colibri.family import Variant
from colibri.serve.media import Encoder, media_of
from colibri.serve.request import GenerationRequest
from colibri.testing.runtime import ScriptedEngine

from .conftest import ALL, Family, engine_saying, service_on, spelled

PARAM = "messages.0.content.1.input_audio"
CODES = Codes(2, 16)


class Listener(Family):
    """Hears each byte as a moment with two codes: how many sixteens it has, and the rest."""

    def __init__(self, answer: Callable[[bytes], Any] | None = None) -> None:
        super().__init__(replace(ALL, inputs=("text", "audio")))
        self.asked: list[tuple[bytes, str, int]] = []
        self.threads: set[threading.Thread] = set()
        self._answer = answer or (lambda data: tuple(divmod(byte, 16) for byte in data))

    def render(self, variant: Variant, conversation: Conversation, options: TurnOptions) -> Prompt:
        pieces: list[Any] = []
        ref = 0
        for turn in conversation.turns:
            pieces.append(Special("<|user|>"))
            for part in turn.content or ():
                pieces.append(part.text if isinstance(part, TextPart) else Media(ref))
                ref += isinstance(part, MediaPart)
        return prompt([*pieces, Special("<|assistant|>")])

    def encode(self, variant: Variant, part: MediaPart, param: str, room: int) -> Any:
        self.asked.append((part.data, param, room))
        self.threads.add(threading.current_thread())
        if len(part.data) > room:
            raise BadRequest("The sound is too long.", param=param)
        return self._answer(part.data)


def heard(*parts: str | bytes) -> Turn:
    content = (TextPart(part) if isinstance(part, str) else MediaPart("audio", part, "wav") for part in parts)
    return Turn("user", tuple(content))


def hearing_engine(text: str = "Yes.", codes: Codes | None = CODES, **sizes: Any) -> ScriptedEngine:
    return engine_saying(text, codes=codes, **sizes)


def request(*turns: Turn, **fields: Any) -> GenerationRequest:
    return GenerationRequest(conversation=Conversation(turns), **fields)


def codes_of(data: bytes) -> list[bytes]:
    return [struct.pack("<2H", *divmod(byte, 16)) for byte in data]


def rows_of(engine: ScriptedEngine) -> list[int | bytes]:
    return [row.codes or row.token for rows in engine.runtime.steps for row in rows]


async def answer(service: Any, *turns: Turn) -> Any:
    """The usage, or the error."""
    generation = service.generate(request(*turns))
    try:
        await generation.admitted()
        async for _ in generation:
            pass
    except ColibriError as error:
        return error
    return generation.usage


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 30))


def test_a_sound_stands_where_the_prompt_says(tokenizer: Tokenizer) -> None:
    async def test() -> None:
        engine, family = hearing_engine(), Listener()
        usage = await answer(service_on(engine, tokenizer, family), heard("a", b"\x01\xff", "b", b"\x20"))
        expected = [*spelled("<|user|>a"), *codes_of(b"\x01\xff"), *b"b", *codes_of(b"\x20"), *spelled("<|assistant|>")]
        assert rows_of(engine)[: len(expected)] == expected
        assert (usage.prompt, usage.audio) == (len(expected), 3)
        assert family.asked == [(b"\x01\xff", PARAM, 255), (b"\x20", "messages.0.content.3.input_audio", 253)]
        assert threading.main_thread() not in family.threads

    run(test)


def test_a_sound_of_an_earlier_turn_is_encoded_and_computed_once(tokenizer: Tokenizer) -> None:
    async def test() -> None:
        engine, family = hearing_engine(slots=1), Listener()
        service = service_on(engine, tokenizer, family)
        turns = [heard("a", b"sound"), heard("b"), heard(b"sound", "c"), heard(b"other")]
        first = await answer(service, turns[0])
        second = await answer(service, *turns[:2])
        third = await answer(service, *turns)
        assert [data for data, *_ in family.asked] == [b"sound", b"other"]
        assert (first.cached, second.cached) == (0, first.prompt - 1)  # all but the cue, which the answer began with
        assert (first.audio, second.audio, third.audio) == (5, 5, 15)

    run(test)


def test_different_sounds_share_no_more_than_what_they_begin_with(tokenizer: Tokenizer) -> None:
    async def test() -> None:
        engine = hearing_engine(slots=1)
        service = service_on(engine, tokenizer, Listener())
        start = len(spelled("<|user|>a"))
        assert (await answer(service, heard("a", b"sound"))).cached == 0
        assert (await answer(service, heard("a", b"south"))).cached == start + 3
        assert (await answer(service, heard("a", b"mouth"))).cached == start

    run(test)


def test_text_never_stands_for_a_sound(tokenizer: Tokenizer) -> None:
    async def test() -> None:
        engine, family = hearing_engine(), Listener()
        text = f"<|user|>{Media(0)}{mark_of(codes_of(b'a')[0])}"
        usage = await answer(service_on(engine, tokenizer, family), heard(text))
        assert usage.audio == 0
        assert not family.asked
        assert all(isinstance(row, int) for row in rows_of(engine))

    run(test)


def test_sounds_have_to_fit_together(tokenizer: Tokenizer) -> None:
    async def test() -> None:
        engine, family = hearing_engine(context=32), Listener()
        service = service_on(engine, tokenizer, family)
        alone = await answer(service, heard("a", b"x" * 32))
        both = await answer(service, heard(b"x" * 20, b"y" * 12))
        around = await answer(service, heard("a" * 20, b"z" * 20))
        for error, param in ((alone, PARAM), (both, PARAM), (around, "messages")):
            assert isinstance(error, BadRequest)
            assert error.param == param
        assert around.code == "context_length_exceeded"
        assert not engine.runtime.steps
        assert (await answer(service, heard(b"y" * 12))).prompt == 14

    run(test)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (lambda data: [(1, 65536)], "failed: error"),
        (lambda data: ((1, "2"),), "failed: error"),
        (lambda data: 7, "failed: TypeError"),
        (lambda data: {}[data], "failed: KeyError"),
    ],
)
def test_a_familys_mistake_is_its_own(tokenizer: Tokenizer, given: Callable[[bytes], Any], reason: str) -> None:
    async def test() -> None:
        engine = hearing_engine()
        error = await answer(service_on(engine, tokenizer, Listener(given)), heard(b"a"))
        assert isinstance(error, PluginError)
        assert f"family fake {reason}" in error.message
        assert not engine.runtime.steps

    run(test)


@pytest.mark.parametrize("codes", [None, Codes(3, 16), Codes(2, 6)])
def test_an_engine_that_reads_other_codes_is_not_asked(tokenizer: Tokenizer, codes: Codes | None) -> None:
    async def test() -> None:
        engine = hearing_engine(codes=codes)
        error = await answer(service_on(engine, tokenizer, Listener()), heard(b"a"))
        assert (error.status, error.code) == (400, "invalid_media")
        assert not engine.runtime.steps

    run(test)


def test_a_request_that_is_cancelled_while_its_sound_is_encoded_holds_nothing(tokenizer: Tokenizer) -> None:
    async def test() -> None:
        began, go, loop = asyncio.Event(), threading.Event(), asyncio.get_running_loop()

        def wait(data: bytes) -> Sequence[Any]:
            loop.call_soon_threadsafe(began.set)
            assert go.wait(10)
            return ((1, 2),)

        engine = hearing_engine()
        service = service_on(engine, tokenizer, Listener(wait))
        generation = service.generate(request(heard(b"a")))
        waiting = asyncio.ensure_future(generation.admitted())
        await began.wait()
        generation.cancel()
        go.set()
        with pytest.raises(ColibriError) as caught:
            await waiting
        assert caught.value.code == "cancelled"
        assert not engine.runtime.steps
        assert (await answer(service, heard(b"a"))).audio == 1

    run(test)


def encode(encoder: Encoder, family: Listener, *parts: bytes) -> list[int]:
    """How many positions each of the sounds takes."""
    shown = Prompt((Text("a"), *(Media(ref) for ref in range(len(parts)))))
    placed = media_of(Conversation((heard(*parts),)))
    found = asyncio.run(encoder.encode(family, family.variant, shown, placed, 1000))
    return [len(found[ref].ids) for ref in range(len(parts))]


def test_no_more_is_remembered_than_the_limit_says() -> None:
    family, encoder = Listener(), Encoder(limit=8)
    for part in (b"abc", b"defg", b"abc", b"hi", b"abc", b"defg", b"long" * 3, b"hi"):
        assert encode(encoder, family, part) == [len(part)]
    assert [data for data, *_ in family.asked] == [b"abc", b"defg", b"hi", b"defg", b"long" * 3, b"hi"]


def test_only_what_the_prompt_shows_is_encoded() -> None:
    family = Listener()
    placed = media_of(Conversation((heard("x", b"ab", b"cd"), heard(b"ef"))))
    assert [item.param for item in placed] == [
        f"messages.{place}.input_audio" for place in ("0.content.1", "0.content.2", "1.content.0")
    ]
    found = asyncio.run(Encoder().encode(family, family.variant, Prompt((Media(2), Media(0), Media(2))), placed, 4))
    assert [(data, room) for data, _, room in family.asked] == [(b"ab", 4), (b"ef", 2)]
    assert found[0].codes == tuple(codes_of(b"ab"))
    assert found[2].ids == tuple(mark_of(codes) for codes in codes_of(b"ef"))
    assert min(found) == 0
    assert max(found[2].ids) < 0


def test_the_same_bytes_as_something_else_are_something_else() -> None:
    family, encoder = Listener(), Encoder()
    for kind, form in (("audio", "wav"), ("image", "wav"), ("audio", "mp3")):
        placed = media_of(Conversation((Turn("user", (MediaPart(kind, b"ab", form),)),)))  # type: ignore[arg-type]
        asyncio.run(encoder.encode(family, family.variant, Prompt((Media(0),)), placed, 9))
    assert [param for _, param, _ in family.asked] == [
        f"messages.0.content.0.{field}" for field in ("input_audio", "image_url", "input_audio")
    ]
