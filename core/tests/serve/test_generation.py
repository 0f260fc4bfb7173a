"""From a request to events and usage, on a scripted engine."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from colibri.chat.conversation import Conversation, Tool, TurnOptions
from colibri.chat.events import Event
from colibri.chat.tokenizer import Tokenizer
from colibri.engine.protocol import Status
from colibri.errors import BadRequest, ColibriError, EngineError, ModelOutputError, Overloaded, PluginError, Unavailable
from colibri.hookspecs import RequestRecord
from colibri.serve.generation import ModelGeneration
from colibri.serve.request import GenerationRequest
from colibri.serve.service import ModelService

from .conftest import Family, engine_saying, service_on, spelled, user

WEATHER = Tool("weather", {}, {"properties": {"city": {"type": "string"}}, "required": ["city"]})


def chat(text: str = "Hi", **fields: Any) -> GenerationRequest:
    options = fields.pop("options", TurnOptions())
    tools = fields.pop("tools", ())
    return GenerationRequest(conversation=Conversation((user(text),), tools), options=options, **fields)


async def read(generation: ModelGeneration) -> list[Event]:
    await generation.admitted()
    return [event async for batch in generation for event in batch]


def shown(events: Sequence[Event], kind: str = "content") -> str:
    return "".join(event.text for event in events if event.kind == kind)


def counts(service: ModelService) -> dict[str, Any]:
    scheduler = service.health()[1]["scheduler"]
    assert isinstance(scheduler, dict)
    return {name: scheduler[name] for name in ("active", "queued", "admitted", "completed", "failed", "cancelled")}


async def until(true: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if true():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came true")


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 30))


def test_an_answer(tokenizer: Tokenizer) -> None:
    async def test() -> None:
        service = service_on(engine_saying("<think>Hm.</think>Héllo!"), tokenizer)
        generation = service.generate(chat())
        admission = await generation.admitted()
        assert await generation.admitted() == admission
        events = [event async for batch in generation for event in batch]
        assert shown(events, "reasoning") == "Hm."
        assert shown(events) == "Héllo!"
        assert [event.span[0] for event in events[1:]] == [event.span[1] for event in events[:-1]]
        prompt = len(spelled("<|user|>Hi<|end|><|assistant|>"))
        assert (admission.prompt_tokens, admission.cached_tokens) == (prompt, 0)
        assert generation.finish_reason == "stop"
        usage = generation.usage
        assert (usage.prompt, usage.cached, usage.completion, usage.reasoning) == (prompt, 0, 12, 3)
        assert counts(service) == {
            "active": 0, "queued": 0, "admitted": 1, "completed": 1, "failed": 0, "cancelled": 0
        }  # fmt: skip

    run(test)


def test_length(tokenizer: Tokenizer) -> None:
    async def test() -> None:
        service = service_on(engine_saying("Hello"), tokenizer, max_tokens=4)
        for asked, text in ((2, "He"), (None, "Hell"), (99, "Hell")):
            generation = service.generate(chat(max_tokens=asked))
            assert shown(await read(generation)) == text
            assert generation.finish_reason == "length"
            assert generation.usage.completion == len(text)

    run(test)


def test_a_stop_text_ends_the_engines_work(tokenizer: Tokenizer) -> None:
    async def test() -> None:
        engine = engine_saying("one END two" * 10)
        service = service_on(engine, tokenizer)
        generation = service.generate(chat(stop=("END",)))
        events = await read(generation)
        assert shown(events) == "one "
        assert generation.finish_reason == "stop"
        assert generation.usage.completion == len("one END")
        await until(lambda: not engine.streams)
        assert len(engine.runtime.steps) < 20
        assert counts(service)["completed"] == 1

    run(test)


def test_a_leading_stop_text_is_dropped(tokenizer: Tokenizer) -> None:
    async def test() -> None:
        service = service_on(engine_saying("STOPuseful STOPdropped"), tokenizer)
        generation = service.generate(chat(stop=("STOP",), ignore_leading_stop=True))
        assert shown(await read(generation)) == "useful "

    run(test)


def test_a_tool_call(tokenizer: Tokenizer) -> None:
    async def test() -> None:
        service = service_on(engine_saying('<call>{"name": "weather", "arguments": {"city": "Rome"}}</call>'), tokenizer)
        generation = service.generate(chat(tools=(WEATHER,)))
        events = await read(generation)
        assert shown(events, "tool_start") == "weather"
        assert shown(events, "tool_args") == '{"city": "Rome"}'
        assert generation.finish_reason == "tool_calls"

    run(test)


def test_a_call_cut_off(tokenizer: Tokenizer) -> None:
    async def test() -> None:
        said = '<call>{"name": "weather", "argum'
        service = service_on(engine_saying(said), tokenizer)
        generation = service.generate(chat(tools=(WEATHER,), max_tokens=20))
        [cut] = [event for event in await read(generation) if event.kind == "tool_cut"]
        assert said.startswith(cut.text)
        assert generation.finish_reason == "length"

    run(test)


@pytest.mark.parametrize(
    "said",
    [
        '<call>{"name": "weather", "arguments": {"city": 7}}</call>',
        '<call>{"name": "weather", "arguments": {}}</call>',
        '<call>{"name": "launch", "arguments": {}}</call>',
        '<call>{"name": "weather", "arg',
    ],
)
def test_strict_calls(tokenizer: Tokenizer, said: str) -> None:
    async def test() -> None:
        engine = engine_saying(said)
        service = service_on(engine, tokenizer)
        generation = service.generate(chat(tools=(WEATHER,), options=TurnOptions(strict_tools=True)))
        with pytest.raises(ModelOutputError) as caught:
            await read(generation)
        assert (caught.value.status, caught.value.code) == (502, "invalid_model_tool_call")
        await until(lambda: not engine.streams)
        assert counts(service)["failed"] == 1
        assert counts(service)["active"] == 0

    run(test)


def test_a_text_is_used_as_it_is(tokenizer: Tokenizer) -> None:
    async def test() -> None:
        service = service_on(engine_saying("<call> is text"), tokenizer)
        generation = service.generate(GenerationRequest(text="<|user|>é"))
        admission = await generation.admitted()
        assert admission.prompt_tokens == len("<|user|>é".encode())  # no control token
        assert "is text" in shown(await read(generation))

    run(test)


def test_a_prompt_that_does_not_fit_is_refused_without_waiting(tokenizer: Tokenizer) -> None:
    async def test() -> None:
        engine = engine_saying("Hello", slots=1)
        engine.paused = True
        service = service_on(engine, tokenizer, max_queue=0)
        first = service.generate(chat())
        await first.admitted()
        with pytest.raises(BadRequest, match="maximum context length is 256 tokens") as caught:
            await service.generate(chat("x" * 300)).admitted()
        assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "messages")
        engine.resume()
        assert shown(await read(first)) == "Hello"

    run(test)


def test_reuse_of_a_conversations_tokens(tokenizer: Tokenizer) -> None:
    async def test() -> None:
        service = service_on(engine_saying("ok"), tokenizer)
        for text in ("The first question", "Something else entirely"):
            await read(service.generate(chat(text)))
        again = service.generate(chat("The first question, again"))
        admission = await again.admitted()
        assert admission.slot == 0
        assert admission.cached_tokens == len(spelled("<|user|>The first question"))
        assert shown(await read(again)) == "ok"
        assert again.usage.cached == admission.cached_tokens

    run(test)


def test_the_engine_dies(tokenizer: Tokenizer) -> None:
    async def test() -> None:
        engine = engine_saying("Hello", slots=1)
        service = service_on(engine, tokenizer)
        running = service.generate(chat())
        await running.admitted()
        queued = asyncio.ensure_future(read(service.generate(chat())))
        await until(lambda: counts(service)["queued"] == 1)
        engine.crash(EngineError("The engine was killed by SIGKILL.", code="engine_crashed"))
        with pytest.raises(EngineError, match="SIGKILL"):
            await read(running)
        assert service.health()[0] is False
        assert service.health()[1]["status"] == "restarting"
        later = asyncio.ensure_future(read(service.generate(chat())))
        await until(lambda: counts(service)["queued"] == 2)
        engine.restart()
        assert [shown(await queued), shown(await later)] == ["Hello", "Hello"]
        assert service.health()[0] is True
        assert counts(service)["failed"] == 1
        assert counts(service)["completed"] == 2

    run(test)


def test_cancelling_while_waiting_for_a_slot(tokenizer: Tokenizer) -> None:
    async def test() -> None:
        engine = engine_saying("Hello", slots=1)
        engine.paused = True
        service = service_on(engine, tokenizer)
        running = service.generate(chat())
        await running.admitted()
        by_task, by_word = service.generate(chat()), service.generate(chat())
        tasks = [asyncio.ensure_future(generation.admitted()) for generation in (by_task, by_word)]
        await until(lambda: counts(service)["queued"] == 2)
        tasks[0].cancel()
        by_word.cancel()
        by_word.cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]
        with pytest.raises(ColibriError, match="cancelled"):
            await tasks[1]
        assert counts(service)["queued"] == 0
        assert counts(service)["cancelled"] == 2
        engine.resume()
        assert shown(await read(running)) == "Hello"

    run(test)


@pytest.mark.parametrize("accepted", [False, True])
def test_cancelling_frees_the_slot_when_the_engine_lets_go(tokenizer: Tokenizer, accepted: bool) -> None:
    async def test() -> None:
        engine = engine_saying("Hello" * 40, slots=1)
        service = service_on(engine, tokenizer)
        generation = service.generate(chat())
        if accepted:
            await generation.admitted()
            assert await anext(generation)
        else:
            task = asyncio.ensure_future(generation.admitted())
            await until(lambda: counts(service)["active"] == 1)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        generation.cancel()
        assert [batch async for batch in generation] == []
        await until(lambda: counts(service)["active"] == 0)
        assert counts(service)["cancelled"] == 1
        assert not engine.streams
        generation.cancel()
        assert len(engine.runtime.steps) < 10

    run(test)


def test_a_reader_that_is_cancelled(tokenizer: Tokenizer) -> None:
    async def test() -> None:
        engine = engine_saying("Hello", slots=1)
        service = service_on(engine, tokenizer)
        generation = service.generate(chat())
        await generation.admitted()
        engine.paused = True
        task = asyncio.ensure_future(read(generation))
        for _ in range(5):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert counts(service)["active"] == 0
        assert counts(service)["cancelled"] == 1

    run(test)


def test_a_generation_that_is_dropped(tokenizer: Tokenizer) -> None:
    async def test() -> None:
        engine = engine_saying("Hello" * 40, slots=2)
        service = service_on(engine, tokenizer)

        async def careless() -> None:
            generation = service.generate(chat())
            await generation.admitted()
            async for _ in generation:
                raise KeyError("the consumer is broken")

        with pytest.raises(KeyError):
            await careless()
        never_read = service.generate(chat())
        await never_read.admitted()
        service.generate(chat())
        del never_read
        gc.collect()
        await until(lambda: counts(service)["active"] == 0)
        assert counts(service)["cancelled"] == 2
        assert not engine.streams

    run(test)


def test_a_slow_reader_holds_no_slot_and_loses_nothing(tokenizer: Tokenizer) -> None:
    async def test() -> None:
        engine = engine_saying("Hello" * 20, slots=1)
        service = service_on(engine, tokenizer)
        slow = service.generate(chat())
        await slow.admitted()
        assert shown(await read(service.generate(chat()))) == "Hello" * 20
        assert shown(await read(slow)) == "Hello" * 20

    run(test)


def test_a_pinned_slot(tokenizer: Tokenizer) -> None:
    async def test() -> None:
        engine = engine_saying("Hello", slots=2)
        service = service_on(engine, tokenizer, max_queue=0)
        first = service.generate(chat(slot=1))
        assert (await first.admitted()).slot == 1
        with pytest.raises(Overloaded, match="Slot 1 is in use"):
            await service.generate(chat(slot=1)).admitted()
        assert (await service.generate(chat()).admitted()).slot == 0
        with pytest.raises(BadRequest) as caught:
            await service.generate(chat(slot=2)).admitted()
        assert caught.value.param == "cache_slot"

    run(test)


def test_what_plugins_hear(tokenizer: Tokenizer) -> None:
    class Observer:
        records: list[RequestRecord] = []

        def request_finished(self, record: RequestRecord) -> None:
            self.records.append(record)

    async def test() -> None:
        plugins: Any = Observer()
        service = service_on(engine_saying("<think>Hm</think>!"), tokenizer, plugins=plugins)
        await read(service.generate(chat()))
        service.generate(chat()).cancel()
        with pytest.raises(BadRequest):
            await service.generate(chat("x" * 300)).admitted()
        done, cancelled, failed = plugins.records
        assert (done.model, done.finish, done.error) == ("fake-1", "stop", None)
        assert (done.prompt_tokens, done.completion_tokens, done.reasoning_tokens) == (5, 5, 2)
        assert (cancelled.finish, cancelled.prompt_tokens) == ("cancelled", 0)
        assert (failed.finish, failed.error) == ("error", "context_length_exceeded")

    run(test)


def test_a_long_prompt_does_not_hold_up_the_loop(tokenizer: Tokenizer) -> None:
    async def test() -> None:
        service = service_on(engine_saying("ok", context=400_000, max_rows=300_000), tokenizer)
        service._desk.engine._chunk = 300_000  # type: ignore[attr-defined]
        turns = 0
        task = asyncio.ensure_future(service.generate(chat("word " * 50_000)).admitted())
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
        assert (await task).prompt_tokens == 250_003
        assert turns > 10

    run(test)


def test_a_broken_family_is_a_plugin_error(tokenizer: Tokenizer) -> None:
    class Broken(Family):
        def render(self, variant: Any, conversation: Any, options: Any) -> Any:
            raise KeyError("system")

    async def test() -> None:
        service = service_on(engine_saying("ok"), tokenizer, Broken())
        with pytest.raises(PluginError, match=r"family fake failed: KeyError: 'system'"):
            service.generate(chat())

    run(test)


def test_while_loading_and_after_a_failure(tokenizer: Tokenizer) -> None:
    async def test() -> None:
        engine = engine_saying("Hello", ready=False)
        service = service_on(engine, tokenizer)
        engine.announce(Status("loading", "reading", 0.5))
        with pytest.raises(Unavailable, match=r"still loading \(reading, 50%\)") as caught:
            await service.generate(chat()).admitted()
        assert (caught.value.status, caught.value.code) == (503, "engine_unavailable")
        assert "Retry-After" in dict(caught.value.headers)
        assert service.health()[0] is False
        assert service.health()[1]["status"] == "loading"
        loaded = asyncio.ensure_future(service.loaded())
        engine.announce(Status("failed", "model.gguf is broken"))
        with pytest.raises(EngineError, match=r"^model\.gguf is broken$"):
            await loaded
        assert service.health()[1]["status"] == "failed"
        with pytest.raises(Unavailable, match=r"model\.gguf is broken"):
            await service.generate(chat()).admitted()

    run(test)
