"""Single fields: what is taken, ignored, malformed, or refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from colibri.api.openai import chat, completions
from colibri.api.openai.wire import Asked
from colibri.errors import ColibriError
from colibri.family import Sampling
from colibri.serve.request import GenerationRequest
from colibri.settings import Settings

from ..fake import FakeService

#: Every field with a meaning, or a refusal.
FIELDS = (
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "stop",
    "stream",
    "stream_options",
    "n",
    "best_of",
    "logit_bias",
    "frequency_penalty",
    "presence_penalty",
    "modalities",
    "response_format",
    "tools",
    "tool_choice",
    "functions",
    "function_call",
    "reasoning_effort",
    "enable_thinking",
    "preserve_thinking",
    "cache_slot",
    "strict_tool_calls",
    "x_colibri_ignore_leading_stop",
    "logprobs",
    "top_logprobs",
    "echo",
    "suffix",
    "audio",
    "prediction",
    "context_compaction",
    "repetition_penalty",
    "chat_template_kwargs",
    "model",
)

TOOLS = [{"type": "function", "function": {"name": "f"}}]


def chat_of(**fields: Any) -> Asked:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], **fields}
    return chat.decode(body, FakeService(), Settings())


def completion_of(**fields: Any) -> Asked:
    return completions.decode({"model": "tiny", "prompt": "Hi", **fields}, FakeService())


def generation_of(**fields: Any) -> GenerationRequest:
    """Both endpoints read the same fields the same way."""
    one, other = chat_of(**fields).generation, completion_of(**fields).generation
    for name in ("max_tokens", "sampling", "stop", "ignore_leading_stop", "slot"):
        assert getattr(one, name) == getattr(other, name)
    return one


def error_of(**fields: Any) -> ColibriError:
    caught = []
    for decode in (chat_of, completion_of):
        with pytest.raises(ColibriError) as error:
            decode(**fields)
        caught.append(error.value)
    assert caught[0].openai() == caught[1].openai()
    return caught[0]


def test_defaults() -> None:
    generation = generation_of()
    assert generation.max_tokens == 16
    assert generation.sampling == Sampling(temperature=0.7, top_p=0.9, top_k=20)
    assert generation.stop == ()
    assert generation.slot is None
    assert not chat_of().stream
    assert completion_of().generation.text == "Hi"
    assert completion_of().generation.conversation is None


def test_null_is_absent_everywhere() -> None:
    fields = dict.fromkeys(FIELDS)
    assert chat_of(**fields) == chat_of()
    assert completion_of(**fields) == completion_of()


def test_bookkeeping_fields_and_unknown_ones_are_ignored() -> None:
    fields = {
        "store": True,
        "metadata": {"a": "b"},
        "service_tier": "auto",
        "user": "u",
        "safety_identifier": "s",
        "parallel_tool_calls": False,
        "prompt_cache_key": "k",
        "verbosity": "low",
        "web_search_options": {},
        "moderation": {},
        "seed": "not validated",
        "x_of_some_client": [1],
        "stream_options": {"include_obfuscation": True},
    }
    assert chat_of(**fields) == chat_of()
    assert completion_of(**fields) == completion_of()


def test_max_tokens() -> None:
    assert generation_of(max_tokens=9).max_tokens == 9
    assert generation_of(max_tokens=999_999).max_tokens == 16
    assert generation_of(max_tokens=9, max_completion_tokens=5).max_tokens == 5
    assert generation_of(max_tokens=9, max_completion_tokens=None).max_tokens == 9
    for name in ("max_tokens", "max_completion_tokens"):
        for bad in (0, -1, 1.5, 2.0, True, "5", [], {}):
            error = error_of(**{name: bad})
            assert (error.status, error.code, error.param) == (400, "invalid_value", name)


def test_sampling() -> None:
    given = generation_of(temperature=0, top_p=1, top_k=5, min_p=0.5, seed=7).sampling
    assert given == Sampling(0.0, 1.0, 5, 0.5, 7)
    assert generation_of(temperature=2, top_p=0.01).sampling.temperature == 2.0
    assert generation_of(top_k=-1).sampling.top_k == 0
    assert generation_of(top_k=2**63).sampling.top_k == 2**31 - 1
    assert generation_of(seed=-1).sampling.seed == 2**63 - 1
    for seed in (True, 1.5, "7", [], {}):
        assert generation_of(seed=seed).sampling.seed is None


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("temperature", [-0.1, 2.1, float("nan"), float("inf"), True, "hot", [], {}]),
        ("top_p", [0, -1, 1.1, float("inf"), True, "1"]),
        ("min_p", [-0.1, 1.1, True, "0"]),
        ("top_k", [-2, 1.5, True, "5"]),
        ("cache_slot", [-1, 2, 1.0, True, "0"]),
        ("x_colibri_ignore_leading_stop", ["yes", 1, [], {}]),
        ("stream", ["true", 1, [], {}]),
        ("n", [0, 1.0, True, "1"]),
        ("best_of", [0, "1"]),
        ("logit_bias", [[], 5, "x"]),
        ("frequency_penalty", ["0", 3, True]),
        ("presence_penalty", [[], -3]),
        ("modalities", ["audio", [], [7], {}]),
        ("response_format", ["json", 5, [], {}, {"type": "yaml"}, {"type": "json_schema"}]),
        ("echo", ["yes", 1, []]),
        ("model", [5, True, [], {}]),
    ],
)
def test_malformed_fields(name: str, bad: list[Any]) -> None:
    for value in bad:
        error = error_of(**{name: value})
        assert (error.status, error.code, error.param) == (400, "invalid_value", name), value
        assert f"`{name}" in error.message


def test_stop() -> None:
    assert generation_of(stop="END").stop == ("END",)
    assert generation_of(stop=["a", "b", " ", "\n"]).stop == ("a", "b", " ", "\n")
    assert generation_of(x_colibri_ignore_leading_stop=True).ignore_leading_stop
    for bad, param in (
        ("", "stop"),
        ([], "stop"),
        (["a"] * 5, "stop"),
        (7, "stop"),
        ({}, "stop"),
        ([""], "stop.0"),
        (["ok", 7], "stop.1"),
        (["ok", None], "stop.1"),
    ):
        error = error_of(stop=bad)
        assert (error.status, error.code, error.param) == (400, "invalid_value", param)


def test_stream_options() -> None:
    assert chat_of(stream=True, stream_options={"include_usage": True}).include_usage
    assert not chat_of(stream=True, stream_options={"include_usage": None}).include_usage
    assert not chat_of(stream_options={"include_usage": True}).include_usage
    assert error_of(stream=True, stream_options="usage").param == "stream_options"
    assert error_of(stream=True, stream_options={"include_usage": 1}).param == "stream_options.include_usage"
    assert error_of(stream_options="usage").param == "stream_options"


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"n": 2}, "unsupported_value", "n"),
        ({"best_of": 2}, "unsupported_value", "best_of"),
        ({"logit_bias": {"42": 100}}, "unsupported_value", "logit_bias"),
        ({"frequency_penalty": 0.5}, "unsupported_parameter", "frequency_penalty"),
        ({"presence_penalty": -1}, "unsupported_parameter", "presence_penalty"),
        ({"modalities": ["audio"]}, "unsupported_value", "modalities"),
        ({"modalities": ["video"]}, "unsupported_value", "modalities"),
        ({"modalities": ["text", "video"]}, "unsupported_value", "modalities"),
        ({"response_format": {"type": "json_object"}}, "unsupported_parameter", "response_format"),
        ({"response_format": {"type": "gbnf", "grammar": "x"}}, "unsupported_parameter", "response_format"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}}},
            "unsupported_parameter",
            "response_format",
        ),
        ({"audio": {"voice": "a"}}, "unsupported_parameter", "audio"),
        ({"prediction": {"type": "content", "content": "a"}}, "unsupported_parameter", "prediction"),
        ({"context_compaction": "auto"}, "unsupported_parameter", "context_compaction"),
        ({"repetition_penalty": 1.1}, "unsupported_parameter", "repetition_penalty"),
        ({"repetition_penalty": True}, "unsupported_parameter", "repetition_penalty"),
        ({"min_tokens": 5}, "unsupported_parameter", "min_tokens"),
        ({"ignore_eos": True}, "unsupported_parameter", "ignore_eos"),
        ({"guided_json": {"type": "object"}}, "unsupported_parameter", "guided_json"),
        ({"chat_template_kwargs": {"enable_thinking": False}}, "unsupported_parameter", "chat_template_kwargs"),
    ],
)
def test_what_is_not_served_is_refused_by_name(fields: dict[str, Any], code: str, param: str) -> None:
    error = error_of(**fields)
    assert (error.status, error.code, error.param) == (400, code, param)


def test_neutral_values_of_what_is_not_served_are_fine() -> None:
    fields = {
        "n": 1,
        "best_of": 1,
        "logit_bias": {},
        "frequency_penalty": 0,
        "presence_penalty": 0.0,
        "modalities": ["text"],
        "response_format": {"type": "text"},
        "echo": False,
        "logprobs": False,
        "context_compaction": "off",
        "repetition_penalty": 1.0,
        "ignore_eos": False,
        "stop_token_ids": [],
    }
    assert generation_of(**fields) == generation_of()


@pytest.mark.parametrize(
    ("decode", "fields"),
    [
        (chat_of, {"prompt": "Hi"}),
        (chat_of, {"suffix": " after"}),
        (completion_of, {"messages": [{"role": "user", "content": "Hi"}]}),
        (completion_of, {"tools": TOOLS}),
        (completion_of, {"functions": 5}),
        (completion_of, {"tool_choice": "required"}),
        (completion_of, {"strict_tool_calls": True}),
        (completion_of, {"reasoning_effort": "high"}),
        (completion_of, {"enable_thinking": True}),
        (completion_of, {"preserve_thinking": "yes"}),
    ],
)
def test_the_other_endpoints_fields_are_refused_by_name(decode: Any, fields: dict[str, Any]) -> None:
    (name,) = fields
    with pytest.raises(ColibriError) as caught:
        decode(**fields)
    assert (caught.value.status, caught.value.code, caught.value.param) == (400, "unsupported_parameter", name)
    assert "/v1/" in caught.value.message


def test_the_other_endpoints_fields_may_ask_for_nothing() -> None:
    nothing = {"tools": [], "tool_choice": "none", "enable_thinking": False, "reasoning_effort": "none"}
    assert completion_of(**nothing) == completion_of()


def test_log_probabilities_of_chat() -> None:
    assert chat_of(top_logprobs=5, logprobs=False) == chat_of()
    for fields, code, param in (
        ({"logprobs": True}, "unsupported_parameter", "logprobs"),
        ({"logprobs": True, "stream": True}, "unsupported_parameter", "logprobs"),
        ({"logprobs": 1}, "invalid_value", "logprobs"),
        ({"logprobs": 0}, "invalid_value", "logprobs"),
        ({"top_logprobs": 33}, "invalid_value", "top_logprobs"),
        ({"top_logprobs": -1}, "invalid_value", "top_logprobs"),
        ({"top_logprobs": True}, "invalid_value", "top_logprobs"),
        ({"top_logprobs": "3", "logprobs": False}, "invalid_value", "top_logprobs"),
        ({"echo": True}, "unsupported_parameter", "echo"),
    ):
        with pytest.raises(ColibriError) as caught:
            chat_of(**fields)
        assert (caught.value.status, caught.value.code, caught.value.param) == (400, code, param)


def test_log_probabilities_of_completions() -> None:
    assert completion_of(logprobs=0) == completion_of(logprobs=False) == completion_of()
    assert completion_of(top_logprobs="never read") == completion_of()
    for fields, code, param in (
        ({"logprobs": 2}, "unsupported_parameter", "logprobs"),
        ({"logprobs": 2, "echo": True}, "unsupported_parameter", "logprobs"),
        ({"logprobs": True}, "invalid_value", "logprobs"),
        ({"logprobs": 33}, "invalid_value", "logprobs"),
        ({"logprobs": -1}, "invalid_value", "logprobs"),
        ({"logprobs": "2"}, "invalid_value", "logprobs"),
        ({"echo": True}, "unsupported_parameter", "echo"),
        ({"echo": "yes", "logprobs": 2}, "invalid_value", "echo"),
    ):
        with pytest.raises(ColibriError) as caught:
            completion_of(**fields)
        assert (caught.value.status, caught.value.code, caught.value.param) == (400, code, param)
    with pytest.raises(ColibriError, match="32"):
        completion_of(logprobs=33)


def test_prompts() -> None:
    for prompt, code in (
        (None, "invalid_value"),
        ("", "invalid_value"),
        (5, "invalid_value"),
        ({}, "invalid_value"),
        (["a"], "unsupported_value"),
        ([1, 2], "unsupported_value"),
        ([], "unsupported_value"),
    ):
        with pytest.raises(ColibriError) as caught:
            completion_of(prompt=prompt)
        assert (caught.value.status, caught.value.code, caught.value.param) == (400, code, "prompt")
    with pytest.raises(ColibriError) as caught:
        completion_of(suffix=" after")
    assert (caught.value.code, caught.value.param) == ("unsupported_parameter", "suffix")


def test_models() -> None:
    error = error_of(model="other")
    assert (error.status, error.code, error.param) == (404, "model_not_found", "model")
    assert "`other`" in error.message
    assert "`tiny`" in error.message


@pytest.mark.parametrize(
    ("fields", "thinking", "effort"),
    [
        ({}, None, None),
        ({"reasoning_effort": "none"}, False, None),
        ({"reasoning_effort": "low"}, True, "low"),
        ({"reasoning_effort": "xhigh"}, True, "xhigh"),
        ({"enable_thinking": True}, True, None),
        ({"enable_thinking": False}, False, None),
        ({"enable_thinking": False, "reasoning_effort": "high"}, False, "high"),
        ({"enable_thinking": True, "reasoning_effort": "none"}, True, None),
    ],
)
def test_thinking(fields: dict[str, Any], thinking: bool | None, effort: str | None) -> None:
    options = chat_of(**fields).generation.options
    assert (options.thinking, options.effort) == (thinking, effort)


def test_chat_options() -> None:
    assert chat_of(preserve_thinking=True).generation.options.preserve_thinking is True
    assert chat_of().generation.options.preserve_thinking is None
    strict = chat_of(strict_tool_calls=True, tools=TOOLS)
    assert strict.generation.options.strict_tools
    assert chat_of(functions=[{"name": "f"}], function_call={"name": "f"}).generation.options.tool_choice.name == "f"
    assert chat_of(cache_slot=1).generation.slot == 1
    for fields, param in (
        ({"reasoning_effort": "extreme"}, "reasoning_effort"),
        ({"reasoning_effort": ["low"]}, "reasoning_effort"),
        ({"enable_thinking": "yes"}, "enable_thinking"),
        ({"preserve_thinking": "yes"}, "preserve_thinking"),
        ({"strict_tool_calls": "true", "tools": TOOLS}, "strict_tool_calls"),
        ({"strict_tool_calls": True}, "strict_tool_calls"),
        ({"strict_tool_calls": True, "tools": TOOLS, "tool_choice": "none"}, "strict_tool_calls"),
        ({"strict_tool_calls": True, "tools": TOOLS, "stream": True}, "strict_tool_calls"),
        ({"functions": 5}, "functions"),
        ({"function_call": {"name": "g"}, "functions": [{"name": "f"}]}, "function_call"),
    ):
        with pytest.raises(ColibriError) as caught:
            chat_of(**fields)
        assert (caught.value.status, caught.value.param) == (400, param)


def test_prompt_injected_tools_are_the_servers_choice() -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}]}
    options = chat.decode(body, FakeService(), Settings(tool_fallback=True)).generation.options
    assert options.tool_fallback
    assert not chat_of().generation.options.tool_fallback
