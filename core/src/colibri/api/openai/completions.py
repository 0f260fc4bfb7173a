"""POST /v1/completions, the older endpoint: text in, text out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...chat.events import Event
from ...errors import BadRequest, Refusal
from ...serve.request import FinishReason, GenerationRequest, Service, Usage
from ..body import decoded
from ..message import Reply, Request, Stream, json_reply
from . import fields
from .unserved import logprobs_refusal, refuse_in_completion
from .wire import Asked, admit, encode, ending, frame, headers_of, new_id, now, read, stream_of, usage_of


class Completions:
    """The handler."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, request: Request) -> Reply | Stream:
        """Decode, generate, encode. Raises ColibriError."""
        asked = await decoded(request, lambda body: decode(body, self._service))
        generation = self._service.generate(asked.generation)
        admission = await admit(generation)
        if asked.stream:
            return stream_of(generation, CompletionFrames(self._service.model_id, asked.include_usage), admission)
        text = text_of(await read(generation))
        reply = {
            "id": new_id("cmpl-"),
            "object": "text_completion",
            "created": now(),
            "model": self._service.model_id,
            "choices": [{"index": 0, "text": text, "logprobs": None, "finish_reason": generation.finish_reason}],
            "usage": usage_of(generation.usage),
        }
        return json_reply(reply, headers=headers_of(admission))


def decode(body: fields.Body, service: Service) -> Asked:
    """The request in `body`. Raises BadRequest, or Refusal for what this server does not do."""
    fields.model(body, service)
    prompt = _prompt(body)
    streaming, include_usage = fields.stream(body)
    _refuse_logprobs(body)
    refuse_in_completion(body)
    generation = GenerationRequest(
        text=prompt,
        max_tokens=fields.max_tokens(body, service),
        sampling=fields.sampling(body, service.sampling(GenerationRequest().options)),
        stop=fields.stop(body),
        ignore_leading_stop=fields.boolean(body, "x_colibri_ignore_leading_stop") or False,
        slot=fields.cache_slot(body, service),
    )
    return Asked(generation, streaming, include_usage)


def text_of(events: Sequence[Event]) -> str:
    """The text that `events` make: a prompt used as it is has an answer used as it is."""
    return "".join(event.text for event in events if event.kind == "content")


class CompletionFrames:
    """The frames of one completion stream. Between a fixed prefix and suffix only the text changes."""

    def __init__(self, model: str, include_usage: bool) -> None:
        self._base = {"id": new_id("cmpl-"), "object": "text_completion", "created": now(), "model": model}
        self._include_usage = include_usage
        chunk: dict[str, Any] = {**self._base, "choices": [_choice(None)]}
        if include_usage:
            chunk["usage"] = None
        self._before, self._after = frame(chunk).rsplit(b'""', 1)
        self.keepalive = self._text("")

    def opening(self) -> bytes:
        """An empty text, so that the client knows at once that it was accepted."""
        return self._text("")

    def events(self, events: Sequence[Event]) -> bytes:
        """One frame with the text of all events."""
        text = text_of(events)
        return self._text(text) if text else b""

    def closing(self, reason: FinishReason, usage: Usage) -> bytes:
        """Why it ended, what it used if that was asked for, and the end mark."""
        choice = _choice("stop" if reason == "tool_calls" else reason)
        return ending(self._base, choice, usage if self._include_usage else None)

    def _text(self, text: str) -> bytes:
        return b"%b%b%b" % (self._before, encode(text), self._after)


def _choice(reason: str | None) -> dict[str, Any]:
    return {"index": 0, "text": "", "logprobs": None, "finish_reason": reason}


def _prompt(body: fields.Body) -> str:
    prompt = body.get("prompt")
    if isinstance(prompt, list):
        raise Refusal(
            "`prompt` must be one string: arrays of prompts or token ids are not supported.",
            param="prompt",
            code="unsupported_value",
        )
    if not isinstance(prompt, str):
        raise fields.wrong("prompt", "a string", prompt)
    if not prompt:
        raise BadRequest("`prompt` must not be empty.", param="prompt")
    return prompt


def _refuse_logprobs(body: fields.Body) -> None:
    """Absent, null, false and 0 all mean no log probabilities; true carries no count."""
    wanted = False
    if body.get("logprobs") is not False:
        wanted = bool(fields.integer(body, "logprobs", 0, 32))
    echo = fields.boolean(body, "echo")
    if wanted:
        raise logprobs_refusal()
    if echo:
        raise Refusal("`echo` needs `logprobs`: the echo is made of the tokens' records.", param="echo")
