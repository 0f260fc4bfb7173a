"""One answer: wait for a slot, have the engine accept, read its tokens into events, leave nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from ..chat.events import Event
from ..chat.output import merged
from ..engine.frames import Accept, Done, Submit, Tokens
from ..engine.limits import refusal
from ..engine.protocol import Engine, unavailable
from ..engine.stream import Stream, raised
from ..errors import ColibriError, EngineError, PluginError
from ..hookspecs import RequestRecord
from .admission import Outcome
from .preparation import Model, Prepared, tokenise
from .recall import Draft, Recall
from .request import Admission, FinishReason, Usage
from .scheduler import Lease, Place, Scheduler


class Desk(Struct, frozen=True):
    """What all generations of a service share. `next_id` numbers requests, `on_end` hears how each one ended."""

    model: str
    engine: Engine
    scheduler: Scheduler
    next_id: Callable[[], int]
    on_end: Callable[[RequestRecord], None]


class _Hold:
    """What a generation holds and has used. It does not know the generation, so that it can outlive it."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.place: Place | None = None
        self.lease: Lease | None = None
        self.stream: Stream | None = None
        self.accept: Accept | None = None
        self.audio = 0
        self.completion = 0
        self.reasoning = 0
        self.finish: FinishReason | None = None
        self.ended = False
        self.began = time.monotonic()
        self._loop = asyncio.get_running_loop()

    @property
    def usage(self) -> Usage:
        if self.accept is None:
            return Usage(0, 0, 0, 0)
        return Usage(self.accept.prompt, self.accept.cached, self.completion, self.reasoning, self.audio)

    def end(self, outcome: Outcome, code: str | None = None) -> None:
        """Let go of everything. The first end counts. The slot is free when the engine says so."""
        if self.ended:
            return
        self.ended = True
        engine = self.desk.engine
        if self.place is not None:
            self.place.leave()
        if self.stream is not None and not self.stream.ended:
            (engine.stop if outcome == "completed" else engine.cancel)(self.stream.id)
        if self.lease is not None:
            self.lease.settle(outcome)
            if self.stream is None:
                self.lease.release()
        usage = self.usage
        finish: dict[Outcome, Literal["error", "cancelled"] | FinishReason] = {
            "completed": self.finish or "stop",
            "failed": "error",
            "cancelled": "cancelled",
        }
        record = RequestRecord(
            model=self.desk.model,
            finish=finish[outcome],
            error=code,
            prompt_tokens=usage.prompt,
            cached_tokens=usage.cached,
            completion_tokens=usage.completion,
            reasoning_tokens=usage.reasoning,
            queue_seconds=0.0 if self.lease is None else self.lease.waited,
            seconds=time.monotonic() - self.began,
        )
        self.desk.on_end(record)

    def abandon(self) -> None:
        """The generation was dropped without an end; said by the garbage collector, from any thread."""
        if not self.ended:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and with it the engine
                self._loop.call_soon_threadsafe(self.end, "cancelled")


class ModelGeneration:
    """A Generation. Before `admitted` is awaited it holds nothing; dropped without a word, it gives back what it held."""

    def __init__(self, prepared: Prepared, model: Model, desk: Desk, recall: Recall | None = None) -> None:
        self._prepared = prepared
        self._recall = recall
        self._draft = Draft()
        self._model = model
        self._desk = desk
        self._hold = _Hold(desk)
        self._admission: Admission | None = None
        weakref.finalize(self, self._hold.abandon).atexit = False

    async def admitted(self) -> Admission:
        if self._admission is None:
            with self._ending():
                self._admission = await self._admit()
        return self._admission

    def __aiter__(self) -> AsyncIterator[list[Event]]:
        return self

    async def __anext__(self) -> list[Event]:
        if self._admission is None:
            await self.admitted()
        while not self._hold.ended:
            with self._ending():
                events = await self._read()
            if events:
                return events
        raise StopAsyncIteration

    @property
    def finish_reason(self) -> FinishReason:
        return self._hold.finish or "stop"

    @property
    def usage(self) -> Usage:
        return self._hold.usage

    def cancel(self) -> None:
        self._hold.end("cancelled")

    async def _admit(self) -> Admission:
        hold, engine, prepared = self._hold, self._desk.engine, self._prepared
        if engine.ready is None:
            raise unavailable(engine.status)
        offer = engine.ready
        prompt = await tokenise(self._model, prepared, offer.context - 1)
        self._go_on()
        hold.audio = prompt.audio
        submit = Submit(
            self._desk.next_id(),
            prompt.ids,
            prepared.max_tokens,
            prepared.sampling,
            prepared.stop_ids,
            prepared.slot,
            [prompt.lengths[pieces - 1] for pieces in prepared.ways_back()] if offer.sequential else [],
            prompt.media,
        )
        check = partial(refusal, context=offer.context, slots=offer.slots, vocab=offer.vocab, codes=offer.codes)
        error = await asyncio.to_thread(check, submit) if submit.media else check(submit)  # sounds have many codes
        self._go_on()
        if error is not None:  # no need to wait for a slot to hear that
            raise raised(error)
        hold.place = self._desk.scheduler.enter(prepared.slot, lambda free: engine.nearest(prompt.ids, free))
        hold.lease = await hold.place.lease()
        hold.stream = engine.submit(replace(submit, slot=hold.lease.slot), hold.lease.release)
        first = await anext(hold.stream)
        self._go_on()
        if not isinstance(first, Accept):
            raise EngineError("The engine ended the request before it had accepted it.")
        hold.accept = first
        return Admission(first.slot, hold.lease.waited, first.prompt, first.cached)

    def _go_on(self) -> None:
        if self._hold.ended:
            raise ColibriError("The request was cancelled.", code="cancelled", status=499)

    async def _read(self) -> list[Event]:
        """The events of the next frame; the last ones end the hold."""
        hold, reader = self._hold, self._prepared.reader
        assert hold.stream is not None
        frame = await anext(hold.stream)
        events: list[Event] = []
        reason: Literal["stop", "length"] | None = None
        if isinstance(frame, Tokens):
            for token in frame.ids:  # one by one, so that what is counted doesn't depend on how tokens were bundled
                hold.completion += 1
                self._draft.ids.append(token)
                events += reader.feed((token,))
                if reader.stopped is not None:
                    reason = "stop"
                    break
        elif isinstance(frame, Done) and frame.finish != "cancelled":
            events, reason = reader.finish(), frame.finish
        elif not hold.ended:
            raise EngineError("The engine dropped the request.")
        hold.reasoning = reader.reasoning_tokens
        self._draft.answer.read(events)
        if reason is not None:
            if self._recall is not None and self._is_whole():
                self._recall.keep(self._draft, self._model.tokenizer.text(self._draft.ids))
            hold.finish = "tool_calls" if self._draft.answer.whole else reason
            hold.end("completed")
        return merged(events)

    def _is_whole(self) -> bool:
        """Whether the draft is the turn that was shown. A stop text cuts it somewhere, unless it is a control token, such as
        the marker of the next turn: then the draft ends in front of that."""
        stopped, ids = self._prepared.reader.stopped, self._draft.ids
        if stopped is None:
            return True
        if ids[-1] != self._model.tokenizer.specials.get(stopped):
            return False
        del ids[-1]
        return True

    @contextlib.contextmanager
    def _ending(self) -> Iterator[None]:
        """However the body fails, everything is let go of."""
        try:
            yield
        except asyncio.CancelledError:
            self._hold.end("cancelled")
            raise
        except ColibriError as error:
            self._hold.end("failed", error.code)
            raise
        except Exception as error:
            self._hold.end("failed", "server_error")
            raise PluginError(f"the answer could not be read: {type(error).__name__}: {error}") from error
