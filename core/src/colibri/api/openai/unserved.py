"""What a request may ask for and this server does not do: refused by name, never ignored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import BadRequest, Refusal
from . import fields

_UNCONSTRAINED = "output is not constrained yet; leave it out"

#: Fields that would change the answer, of OpenAI's and of other servers' that clients are written for: the values that
#: ask for nothing, as null does, and why any other is refused.
_UNSERVED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "prediction": ((), "outputs are not predicted here; leave it out"),
    "audio": ((), "only text is made; leave it out"),
    "context_compaction": (("off",), "conversations are not shortened here; leave it out or set it to off"),
    "chat_template": ((), "the model's own template is used; leave it out"),
    "chat_template_kwargs": (({},), "send `enable_thinking` and `preserve_thinking` as fields of the request itself"),
    "repetition_penalty": ((1,), "leave it out or set it to 1"),
    "repeat_penalty": ((1,), "leave it out or set it to 1"),
    "typical_p": ((1,), "leave it out or set it to 1"),
    "mirostat": ((0,), "leave it out or set it to 0"),
    "min_tokens": ((0,), "leave it out or set it to 0"),
    "ignore_eos": ((False,), "leave it out or set it to false"),
    "stop_token_ids": (([],), "name texts in `stop`"),
    "bad_words": (([],), "leave it out"),
    "use_beam_search": ((False,), "leave it out or set it to false"),
    "json_schema": (({},), _UNCONSTRAINED),
    "grammar": (("",), _UNCONSTRAINED),
    "structured_outputs": ((), _UNCONSTRAINED),
    "guided_json": ((), _UNCONSTRAINED),
    "guided_regex": ((), _UNCONSTRAINED),
    "guided_choice": ((), _UNCONSTRAINED),
    "guided_grammar": ((), _UNCONSTRAINED),
}

#: Fields that only one endpoint can read, with the values that ask for nothing on the other.
_CHAT_ONLY: Mapping[str, tuple[Any, ...]] = {
    "messages": (),
    "tools": ([],),
    "functions": ([],),
    "tool_choice": ("none", "auto"),
    "function_call": ("none", "auto"),
    "strict_tool_calls": (False,),
    "reasoning_effort": ("none",),
    "enable_thinking": (False,),
    "preserve_thinking": (False,),
}
_COMPLETIONS_ONLY: Mapping[str, tuple[Any, ...]] = {"prompt": (), "suffix": ()}


def refuse_in_chat(body: fields.Body) -> None:
    """Refuse what a chat can't have. Raises Refusal, or BadRequest for malformed fields."""
    _refuse_foreign(body, _COMPLETIONS_ONLY, "/v1/completions")
    _refuse_unserved(body)


def refuse_in_completion(body: fields.Body) -> None:
    """Refuse what a completion can't have. Raises Refusal, or BadRequest for malformed fields."""
    if body.get("suffix") is not None:
        raise Refusal("`suffix` is not supported: text is only continued, not filled in.", param="suffix")
    _refuse_foreign(body, _CHAT_ONLY, "/v1/chat/completions")
    _refuse_unserved(body)


def _refuse_foreign(body: fields.Body, foreign: Mapping[str, tuple[Any, ...]], endpoint: str) -> None:
    for name, neutral in foreign.items():
        if not _asks_nothing(body.get(name), neutral):
            raise Refusal(f"`{name}` has no meaning here; it belongs to {endpoint}.", param=name)


def _refuse_unserved(body: fields.Body) -> None:
    for name in ("n", "best_of"):
        if (count := fields.integer(body, name, 1)) is not None and count != 1:
            raise Refusal(f"`{name}` must be 1: one answer is made per request.", param=name, code="unsupported_value")
    _refuse_bias(body)
    for name in ("frequency_penalty", "presence_penalty"):
        if fields.number(body, name, -2, 2):
            raise Refusal(f"`{name}` is not supported; leave it out or set it to 0.", param=name)
    _refuse_modalities(body)
    _refuse_format(body)
    for name, (neutral, advice) in _UNSERVED.items():
        if not _asks_nothing(body.get(name), neutral):
            raise Refusal(f"`{name}` is not supported: {advice}.", param=name)


def _asks_nothing(value: Any, neutral: tuple[Any, ...]) -> bool:
    # True is no 1 here, as it is none in JSON.
    return value is None or any(value == word and isinstance(value, bool) == isinstance(word, bool) for word in neutral)


def logprobs_refusal() -> Refusal:
    """The refusal of token log probabilities."""
    return Refusal("Log probabilities are not read from this model by this server.", param="logprobs")


def _refuse_bias(body: fields.Body) -> None:
    bias = body.get("logit_bias")
    if bias is not None and not isinstance(bias, dict):
        raise fields.wrong("logit_bias", "an object", bias)
    if bias:
        raise Refusal("`logit_bias` is not supported; leave it out.", param="logit_bias", code="unsupported_value")


def _refuse_modalities(body: fields.Body) -> None:
    value = body.get("modalities")
    if value is None:
        return
    if not isinstance(value, list) or not value or not all(isinstance(word, str) for word in value):
        raise BadRequest("`modalities` must be an array of at least one string.", param="modalities")
    if any(word != "text" for word in value):
        raise Refusal('`modalities` must be ["text"]: only text is made.', param="modalities", code="unsupported_value")


def _refuse_format(body: fields.Body) -> None:
    value = body.get("response_format")
    if value is None:
        return
    if not isinstance(value, dict):
        raise fields.wrong("response_format", "an object", value)
    form = value.get("type")
    if form == "text":
        return
    if form == "json_schema":
        schema = value.get("json_schema")
        if not isinstance(schema, dict) or not isinstance(schema.get("schema"), dict):
            raise BadRequest("`response_format.json_schema.schema` must be an object.", param="response_format")
    elif form not in ("json_object", "gbnf"):
        raise BadRequest("`response_format.type` must be one of text, json_object and json_schema.", param="response_format")
    raise Refusal(
        f"`response_format` of type {form} is not supported: output is not constrained yet. Use type text.",
        param="response_format",
    )
