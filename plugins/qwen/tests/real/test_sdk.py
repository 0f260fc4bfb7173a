"""The official OpenAI SDK against a served real model."""

from __future__ import annotations

import json
from collections.abc import Iterator

import openai
import pytest

from .conftest import Server

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the current weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "Name of the city"}},
            "required": ["city"],
        },
    },
}

PHRASINGS = [
    ("Paris", "What is the weather in Paris?"),
    ("Tokyo", "How's the weather in Tokyo right now?"),
    ("Berlin", "Tell me the current weather in Berlin."),
    ("Madrid", "Is it raining in Madrid?"),
    ("Oslo", "I'm flying to Oslo today. What's the weather like there?"),
    ("Cairo", "Could you check the weather in Cairo for me?"),
    ("Sydney", "Use the tool to look up the weather in Sydney."),
    ("Lima", "weather Lima"),
    ("London", "Do I need an umbrella in London? Check the weather."),
    ("Rome", "Please find out how warm it is in Rome at the moment."),
]


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.url + "/v1", api_key="local", max_retries=0, timeout=120) as client:
        yield client


@pytest.fixture(scope="module")
def name(client: openai.OpenAI) -> str:
    models = client.models.list().data
    assert len(models) == 1
    assert client.models.retrieve(models[0].id).id == models[0].id
    return models[0].id


def test_chat_answers(client: openai.OpenAI, name: str) -> None:
    reply = client.chat.completions.create(
        model=name,
        messages=[{"role": "user", "content": "What is the capital of France? Answer with one word."}],
        temperature=0,
        max_tokens=16,
    )
    assert "Paris" in (reply.choices[0].message.content or "")
    assert reply.choices[0].finish_reason == "stop"
    assert reply.usage is not None
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens


def test_stream_is_the_plain_answer(client: openai.OpenAI, name: str) -> None:
    messages = [{"role": "user", "content": "Count from 1 to 8, separated by commas."}]
    plain = client.chat.completions.create(model=name, messages=messages, temperature=0, max_tokens=48)
    chunks = list(
        client.chat.completions.create(
            model=name,
            messages=messages,
            temperature=0,
            max_tokens=48,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == plain.choices[0].message.content
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == ["stop"]
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == plain.usage.completion_tokens
    assert chunks[-1].usage.prompt_tokens_details.cached_tokens > 0


def test_completions(client: openai.OpenAI, name: str) -> None:
    reply = client.completions.create(model=name, prompt="def fibonacci(n):\n", temperature=0, max_tokens=48, stop=["\n\n"])
    assert "return" in reply.choices[0].text
    assert "\n\n" not in reply.choices[0].text
    streamed = client.completions.create(
        model=name, prompt="def fibonacci(n):\n", temperature=0, max_tokens=48, stop=["\n\n"], stream=True
    )
    assert "".join(c.choices[0].text for c in streamed if c.choices) == reply.choices[0].text


def test_length_and_seed(client: openai.OpenAI, name: str) -> None:
    def ask() -> openai.types.chat.ChatCompletion:
        return client.chat.completions.create(
            model=name,
            messages=[{"role": "user", "content": "Write a story about the sea."}],
            temperature=1.0,
            seed=7,
            max_tokens=24,
        )

    first, second = ask(), ask()
    assert first.choices[0].finish_reason == "length"
    assert first.usage.completion_tokens == 24
    assert first.choices[0].message.content == second.choices[0].message.content


def test_tools_plain_and_streamed(client: openai.OpenAI, name: str) -> None:
    plain_hits = streamed_hits = 0
    for city, question in PHRASINGS:
        messages = [{"role": "user", "content": question}]
        plain = client.chat.completions.create(model=name, messages=messages, tools=[WEATHER], temperature=0, max_tokens=128)
        calls = [(c.function.name, json.loads(c.function.arguments)) for c in plain.choices[0].message.tool_calls or []]
        hit = calls == [("get_weather", {"city": city})]
        plain_hits += hit
        assert (plain.choices[0].finish_reason == "tool_calls") == bool(calls)

        with client.chat.completions.stream(
            model=name, messages=messages, tools=[WEATHER], temperature=0, max_tokens=128
        ) as stream:
            final = stream.get_final_completion()
        streamed = [(c.function.name, json.loads(c.function.arguments)) for c in final.choices[0].message.tool_calls or []]
        assert streamed == calls
        streamed_hits += streamed == [("get_weather", {"city": city})]
    assert plain_hits >= 8, f"{plain_hits} of 10 plain calls are right"
    assert streamed_hits >= 8, f"{streamed_hits} of 10 streamed calls are right"


def test_tool_round_trip(client: openai.OpenAI, name: str) -> None:
    messages: list[dict] = [{"role": "user", "content": "What is the weather in Paris?"}]
    first = client.chat.completions.create(model=name, messages=messages, tools=[WEATHER], temperature=0, max_tokens=128)
    call = first.choices[0].message.tool_calls[0]
    messages.append(first.choices[0].message.model_dump(exclude_none=True))
    messages.append({"role": "tool", "tool_call_id": call.id, "content": '{"temperature_c": 31, "sky": "sunny"}'})
    second = client.chat.completions.create(model=name, messages=messages, tools=[WEATHER], temperature=0, max_tokens=64)
    # The model leaves its tags out, and yet the turn that comes back is the one its slot holds, to the last token.
    assert second.usage.prompt_tokens_details.cached_tokens >= first.usage.prompt_tokens + first.usage.completion_tokens - 1


def test_errors_have_their_classes(client: openai.OpenAI, name: str) -> None:
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="no-such-model", messages=[{"role": "user", "content": "x"}])
    with pytest.raises(openai.BadRequestError) as long:
        client.chat.completions.create(
            model=name, messages=[{"role": "user", "content": "word " * 6000}], stream=True, max_tokens=4
        )
    assert long.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model=name, messages=[{"role": "user", "content": "x"}], n=2)
    assert refused.value.param == "n"
