"""POST /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...chat.answer import Answer
from ...chat.conversation import Conversation, ToolChoice, TurnOptions
from ...chat.events import Event
from ...errors import BadRequest, Refusal
from ...serve.request import FinishReason, GenerationRequest, Service, Usage
from ...settings import Settings
from ..body import decoded
from ..message import Reply, Request, Stream, json_reply
from . import fields
from .messages import decode_messages, decode_tool_choice, decode_tools
from .unserved import logprobs_refusal, refuse_in_chat
from .wire import Asked, admit, encode, ending, frame, headers_of, merged, new_id, now, read, stream_of, usage_of


class Chat:
    """The handler."""

    def __init__(self, service: Service, settings: Settings) -> None:
        self._service, self._settings = service, settings

    async def __call__(self, request: Request) -> Reply | Stream:
        """Decode, generate, encode. Raises ColibriError."""
        asked = await decoded(request, lambda body: decode(body, self._service, self._settings))
        generation = self._service.generate(asked.generation)
        admission = await admit(generation)
        if asked.stream:
            return stream_of(generation, ChatFrames(self._service.model_id, asked.include_usage), admission)
        message = message_of(await read(generation))
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": generation.finish_reason}
        reply = {
            "id": new_id("chatcmpl-"),
            "object": "chat.completion",
            "created": now(),
            "model": self._service.model_id,
            "choices": [choice],
            "usage": usage_of(generation.usage),
        }
        return json_reply(reply, headers=headers_of(admission))


def decode(body: fields.Body, service: Service, settings: Settings) -> Asked:
    """The request in `body`. Raises BadRequest, or Refusal for what this server does not do."""
    fields.model(body, service)
    turns = decode_messages(body.get("messages"))
    streaming, include_usage = fields.stream(body)
    _refuse_logprobs(body)
    refuse_in_chat(body)
    tools = decode_tools(body.get("tools")) or decode_tools(body.get("functions"), "functions")
    choice = _tool_choice(body, tools)
    thinking, effort = fields.thinking(body)
    options = TurnOptions(
        thinking=thinking,
        effort=effort,
        preserve_thinking=fields.boolean(body, "preserve_thinking"),
        tool_choice=choice,
        strict_tools=_strict(body, streaming, bool(tools) and choice.mode != "none"),
        tool_fallback=settings.tool_fallback,
    )
    generation = GenerationRequest(
        conversation=Conversation(turns, tools),
        options=options,
        max_tokens=fields.max_tokens(body, service),
        sampling=fields.sampling(body, service.sampling(options)),
        stop=fields.stop(body),
        ignore_leading_stop=fields.boolean(body, "x_colibri_ignore_leading_stop") or False,
        slot=fields.cache_slot(body, service),
    )
    return Asked(generation, streaming, include_usage)


def message_of(events: Sequence[Event]) -> dict[str, Any]:
    """The assistant message that `events` make."""
    answer = Answer(events)
    calls = answer.made()
    message: dict[str, Any] = {
        "role": "assistant",
        "content": answer.shown if answer.shown or not calls else None,
        "refusal": None,
        "annotations": [],
    }
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if calls:
        message["tool_calls"] = [
            {"id": new_id("call_", 24), "type": "function", "function": {"name": name, "arguments": arguments}}
            for name, arguments in calls
        ]
    return message


class ChatFrames:
    """The frames of one chat stream. Between a fixed prefix and suffix only a delta changes."""

    def __init__(self, model: str, include_usage: bool) -> None:
        self._base = {"id": new_id("chatcmpl-"), "object": "chat.completion.chunk", "created": now(), "model": model}
        self._include_usage = include_usage
        chunk = {**self._base, "choices": [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": None}]}
        if include_usage:
            chunk["usage"] = None
        # The split is at the delta's last possible place: a model's name can't fake it from before.
        self._before, self._after = frame(chunk).rsplit(b"{}", 1)
        self._indexes: dict[int, int] = {}
        self.keepalive = self._delta(b'{"reasoning_content":""}')

    def opening(self) -> bytes:
        """The role."""
        return self._delta(b'{"role":"assistant","content":""}')

    def events(self, events: Sequence[Event]) -> bytes:
        """A delta for every run of events of one kind."""
        frames: list[bytes] = []
        for kind, call, text in merged(events):
            if kind == "content":
                if text:
                    frames.append(self._delta(b'{"content":%b}' % encode(text)))
            elif kind == "reasoning":
                if text:
                    frames.append(self._delta(b'{"reasoning_content":%b}' % encode(text)))
            elif kind == "tool_start":
                self._indexes[call] = index = len(self._indexes)
                head = {
                    "index": index,
                    "id": new_id("call_", 24),
                    "type": "function",
                    "function": {"name": text, "arguments": ""},
                }
                frames.append(self._delta(encode({"tool_calls": [head]})))
            elif kind == "tool_args":
                if text:
                    arguments = b'{"tool_calls":[{"index":%d,"function":{"arguments":%b}}]}'
                    frames.append(self._delta(arguments % (self._indexes[call], encode(text))))
            elif kind == "tool_cut" and call not in self._indexes:
                # Once its start was sent a call can't be taken back; before, its text is just text.
                frames.append(self._delta(b'{"content":%b}' % encode(text)))
        return b"".join(frames)

    def closing(self, reason: FinishReason, usage: Usage) -> bytes:
        """Why it ended, what it used if that was asked for, and the end mark."""
        choice = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": reason}
        return ending(self._base, choice, usage if self._include_usage else None)

    def _delta(self, delta: bytes) -> bytes:
        return b"%b%b%b" % (self._before, delta, self._after)


def _tool_choice(body: fields.Body, tools: Any) -> ToolChoice:
    if body.get("tool_choice") is None and body.get("function_call") is not None:
        return decode_tool_choice(body["function_call"], tools, "function_call")
    return decode_tool_choice(body.get("tool_choice"), tools)


def _refuse_logprobs(body: fields.Body) -> None:
    wanted = fields.boolean(body, "logprobs")
    fields.integer(body, "top_logprobs", 0, 32)
    if fields.boolean(body, "echo"):
        raise Refusal("`echo` belongs to /v1/completions; a chat has nothing to echo.", param="echo")
    if wanted:
        raise logprobs_refusal()


def _strict(body: fields.Body, streaming: bool, active_tools: bool) -> bool:
    strict = fields.boolean(body, "strict_tool_calls") or False
    if strict and streaming:
        raise BadRequest("`strict_tool_calls` needs `stream` to be false.", param="strict_tool_calls")
    if strict and not active_tools:
        raise BadRequest("`strict_tool_calls` needs declared tools that may be called.", param="strict_tool_calls")
    return strict
