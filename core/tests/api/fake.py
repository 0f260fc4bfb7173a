"""A served model that does what a script says, at once or when told, and counts who holds it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from msgspec import Struct

from colibri.chat.conversation import TurnOptions
from colibri.chat.events import Event, Kind
from colibri.engine.figures import Figures
from colibri.errors import ColibriError
from colibri.family import Capabilities, Sampling, Variant
from colibri.serve.request import Admission, FinishReason, GenerationRequest, Usage


def events(*items: tuple[Kind, str] | tuple[Kind, str, int]) -> list[Event]:
    """Events of (kind, text) or (kind, text, call); their spans do not matter here."""
    return [Event(item[0], item[1], (0, 0), item[2] if len(item) > 2 else -1) for item in items]


class Script(Struct):
    """What a generation does. A step is a batch of events, an error to raise, or an asyncio.Event to wait for."""

    steps: list[Any] = []
    refuse: Exception | None = None
    admit: Exception | asyncio.Event | None = None
    finish: FinishReason = "stop"
    usage: Usage = Usage(7, 3, 2, 1)


HELLO = Script([events(("content", "H")), events(("content", "é")), events(("content", "llo"))])

CALL = Script(
    [
        events(("reasoning", "I need ")),
        events(("reasoning", "weather"), ("swallowed", "")),
        events(("content", "Looking.")),
        events(("tool_start", "get_weather", 0), ("tool_args", '{"city":', 0)),
        events(("tool_args", ' "Par', 0)),
        events(("tool_args", 'is"}', 0), ("tool_end", "", 0)),
        events(("tool_start", "get_time", 1), ("tool_args", "{}", 1), ("tool_end", "", 1)),
    ],
    finish="tool_calls",
)


class FakeGeneration:
    """A generation that plays its script. It holds its slot from the start until its end or `cancel`."""

    def __init__(self, service: FakeService, script: Script) -> None:
        self._service, self._script = service, script
        self.cancelled = False
        self._ended = False
        service.live.add(self)

    async def admitted(self) -> Admission:
        if isinstance(self._script.admit, Exception):
            self._end()
            raise self._script.admit
        if self._script.admit is not None:
            await self._script.admit.wait()
        return Admission(slot=1, queue_seconds=0.0314, prompt_tokens=7, cached_tokens=3)

    async def __aiter__(self) -> AsyncIterator[list[Event]]:
        for step in self._script.steps:
            if isinstance(step, Exception):
                self._end()
                raise step
            if isinstance(step, asyncio.Event):
                await step.wait()
            else:
                self._service.steps += 1
                yield step
                await asyncio.sleep(0)
        self._end()

    @property
    def finish_reason(self) -> FinishReason:
        assert self._ended
        return self._script.finish

    @property
    def usage(self) -> Usage:
        assert self._ended
        return self._script.usage

    def cancel(self) -> None:
        self.cancelled = self.cancelled or not self._ended
        self._end()

    def _end(self) -> None:
        self._ended = True
        self._service.live.discard(self)


class FakeService:
    """Plays `script` for every request and remembers what was asked."""

    model_id = "tiny"
    created = 1_700_000_000
    max_tokens = 16
    slots = 2

    def __init__(self, script: Script = HELLO, capabilities: Capabilities | None = None) -> None:
        self.script = script
        self.variant = Variant("fake1", "Fake 1", capabilities or Capabilities(tools="native", thinking="optional"))
        self.requests: list[GenerationRequest] = []
        self.generations: list[FakeGeneration] = []
        self.live: set[FakeGeneration] = set()
        self.steps = 0
        self.well = True
        self.told = Figures()

    def sampling(self, options: TurnOptions) -> Sampling:
        return Sampling(temperature=0.7, top_p=0.9, top_k=20)

    def generate(self, request: GenerationRequest) -> FakeGeneration:
        if self.script.refuse is not None:
            raise self.script.refuse
        self.requests.append(request)
        self.generations.append(FakeGeneration(self, self.script))
        return self.generations[-1]

    def figures(self) -> Figures:
        return self.told

    def health(self) -> tuple[bool, dict[str, object]]:
        return self.well, {"engine": "running" if self.well else "restarting", "queued": 0}


def broken(message: str = "the engine was killed by signal 9", code: str = "engine_error") -> ColibriError:
    """A failure a client is told about."""
    return ColibriError(message, code=code)
