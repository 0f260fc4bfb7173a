"""Bytes of OpenAI's replies and stream frames."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from ...api.message import Headers, Stream
from ...chat.events import Event
from ...errors import ColibriError
from ...serve.request import Admission, FinishReason, Generation, GenerationRequest, Usage

encode = msgspec.json.encode

DONE = b"data: [DONE]\n\n"


def new_id(prefix: str, size: int = 32) -> str:
    """A fresh identifier: `prefix` and `size` hex digits."""
    return prefix + secrets.token_hex(size // 2)


def now() -> int:
    """The time of a reply, in whole seconds."""
    return int(time.time())


def frame(value: Any) -> bytes:
    """One SSE frame."""
    return b"data: %b\n\n" % encode(value)


def failure(error: ColibriError) -> bytes:
    """The end of a stream that broke: the error, then the end mark every client waits for."""
    return frame(error.openai()) + DONE


def ending(base: dict[str, Any], choice: dict[str, Any], usage: Usage | None) -> bytes:
    """The last frames of a stream: its last choice, its usage if that was asked for, and the end mark."""
    last = {**base, "choices": [choice]}
    if usage is None:
        return frame(last) + DONE
    return frame({**last, "usage": None}) + frame({**base, "choices": [], "usage": usage_of(usage)}) + DONE


def usage_of(usage: Usage) -> dict[str, Any]:
    """The usage object."""
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached, "audio_tokens": usage.audio},
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def headers_of(admission: Admission) -> Headers:
    """The headers of a generated answer."""
    return (("x-colibri-queue-wait-ms", str(round(admission.queue_seconds * 1000))),)


async def admit(generation: Generation) -> Admission:
    """Wait until the engine has accepted. Whatever ends the wait otherwise cancels the generation."""
    try:
        return await generation.admitted()
    except BaseException:
        generation.cancel()
        raise


async def read(generation: Generation) -> list[Event]:
    """All events of a generation that is answered in one piece."""
    events: list[Event] = []
    try:
        async for batch in generation:
            events += batch
    finally:
        generation.cancel()
    return events


class Asked(Struct, frozen=True):
    """A decoded request: what to generate, and how to send it."""

    generation: GenerationRequest
    stream: bool
    include_usage: bool


class Frames(Protocol):
    """Writes the frames of one stream; each method returns whole frames."""

    keepalive: bytes

    def opening(self) -> bytes:
        """What is sent when the engine has accepted."""
        ...

    def events(self, events: Sequence[Event]) -> bytes:
        """The frames of one batch, b"" if a client sees nothing of it."""
        ...

    def closing(self, reason: FinishReason, usage: Usage) -> bytes:
        """The frames that end the stream."""
        ...


def stream_of(generation: Generation, frames: Frames, admission: Admission) -> Stream:
    """The stream of an admitted generation."""
    return Stream(_chunks(generation, frames), frames.keepalive, failure, generation.cancel, headers_of(admission))


async def _chunks(generation: Generation, frames: Frames) -> AsyncGenerator[bytes, None]:
    # Every step of the engine becomes at most one write, however many events it made.
    if opening := frames.opening():
        yield opening
    async for batch in generation:
        if data := frames.events(batch):
            yield data
    yield frames.closing(generation.finish_reason, generation.usage)


def merged(events: Iterable[Event]) -> list[tuple[str, int, str]]:
    """(kind, call, text) of the events that a client sees; neighbours of one kind are joined."""
    runs: list[tuple[str, int, list[str]]] = []
    for event in events:
        if runs and runs[-1][0] == event.kind and runs[-1][1] == event.call and event.kind in _JOINED:
            runs[-1][2].append(event.text)
        elif event.kind != "swallowed":
            runs.append((event.kind, event.call, [event.text]))
    return [(kind, call, "".join(texts)) for kind, call, texts in runs]


_JOINED = ("content", "reasoning", "tool_args")
