"""Continuous batching: which rows each step computes, and what becomes of the tokens it picks."""

from __future__ import annotations

import logging
import random
import time
from collections import deque
from collections.abc import Callable
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from ..compute.runtime import Row, Runtime
from ..errors import ColibriError
from ..family import Sampling
from .frames import Accept, Done, Error, Submit, Tokens
from .limits import refusal
from .slots import Slot, Slots

log = logging.getLogger(__name__)

Emit = Callable[[Accept | Tokens | Done | Error], None]

_SEEDS = 1 << 64

#: How far apart a prompt is remembered at least, in tokens, where slots can't be cut anywhere.
_EVERY = 1024


class _Request:
    """A request in a slot. It prefills until `token`, the last one picked, is there; then it decodes."""

    def __init__(self, submit: Submit, slot: Slot, limit: int, now: float) -> None:
        self.id = submit.id
        self.prompt = submit.ids
        self.codes = dict(zip((at for at, id in enumerate(submit.ids) if id < 0), submit.media, strict=True))
        self.slot = slot
        self.limit = limit
        self.stops = frozenset(submit.stop_ids)
        seed = submit.sampling.seed
        self.sampling: Sampling = replace(submit.sampling, seed=random.getrandbits(64) if seed is None else seed % _SEEDS)
        self.token = -1
        self.drawn = 0
        self.ways_back = set(submit.ways_back)
        self.accepted_at = now
        self.decoding_since: float | None = None


class _Part(Struct, frozen=True):
    """What a step computes of one request: `tokens` at the slot's next positions; the last one `takes` a new token."""

    request: _Request
    tokens: list[int]
    takes: bool

    def rows(self) -> list[Row]:
        request, start = self.request, len(self.request.slot.history)
        slot = request.slot.index
        rows = [
            Row(token, slot, at) if token >= 0 else Row(0, slot, at, codes=request.codes[at])
            for at, token in enumerate(self.tokens, start)
        ]
        if self.takes:
            rows[-1] = replace(rows[-1], sampling=request.sampling, draw=request.drawn)
        return rows


class Planner:
    """Runs requests on a runtime, step by step. Not for concurrent use.

    A step holds the next row of every decoding request and at most `chunk` rows of one prompt; prompts take turns, so a
    long one delays running answers by no more than a chunk, and other prompts by no more than their share.
    """

    def __init__(
        self,
        runtime: Runtime,
        emit: Emit,
        *,
        chunk: int,
        slots: Slots | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        if runtime.max_rows < runtime.slots:
            raise ValueError(f"a runtime of {runtime.slots} slots must take that many rows, not {runtime.max_rows}")
        self.slots = slots or Slots(runtime.slots)
        self._runtime = runtime
        self._emit = emit
        self._chunk = max(1, chunk)
        self._clock = clock
        self._requests: dict[int, _Request] = {}
        self._prefilling: deque[_Request] = deque()

    @property
    def busy(self) -> bool:
        """Whether a step has anything to do."""
        return bool(self._requests)

    def submit(self, submit: Submit) -> None:
        """Accept a request into a slot, or emit why not."""
        if submit.id in self._requests:
            log.warning("request %d was submitted twice; the second one is ignored", submit.id)
            return
        runtime = self._runtime
        error = refusal(submit, context=runtime.context, slots=runtime.slots, vocab=runtime.vocab, codes=runtime.codes)
        free = self.slots.free()
        if error is None and (not free if submit.slot is None else submit.slot not in free):
            which = "every slot" if submit.slot is None else f"slot {submit.slot}"
            error = Error(submit.id, "slot_busy", f"The engine is using {which} for other requests. Try again later.", 503)
        if error is not None:
            self._emit(error)
            return
        index = self.slots.nearest(submit.ids, free) if submit.slot is None else submit.slot
        cached = self.slots.take(index, submit.ids, runtime)
        limit = min(submit.max_tokens, runtime.context - len(submit.ids))
        request = _Request(submit, self.slots.all[index], limit, self._clock())
        self._requests[request.id] = request
        self._prefilling.append(request)
        self._emit(Accept(request.id, index, len(submit.ids), cached, limit))

    def stop(self, id: int) -> None:
        """End a request as finished; one that is over already is left alone."""
        self._end(id, "stop")

    def cancel(self, id: int) -> None:
        """End a request that nobody reads."""
        self._end(id, "cancelled")

    def fail(self, id: int, code: str, message: str, status: int = 500) -> None:
        """End a request, known or not, with an error."""
        request = self._requests.get(id)
        if request is not None:
            self._drop(request)
        self._emit(Error(id, code, message, status))

    def step(self) -> None:
        """Compute one batch and emit what came of it. Does nothing when nothing is to be done."""
        parts = [_Part(request, [request.token], takes=True) for request in self._requests.values() if request.token >= 0]
        if self._prefilling:
            parts.append(self._chunk_of(self._prefilling.popleft(), room=self._runtime.max_rows - len(parts)))
        if parts:
            self._compute(parts)

    def _chunk_of(self, request: _Request, room: int) -> _Part:
        """The next tokens of a prompt; if more follow, it goes to the end of the line."""
        start = len(request.slot.history)
        tokens = request.prompt[start : min(start + min(self._chunk, room), self._next_way_back(request, start))]
        last = start + len(tokens) == len(request.prompt)
        if not last:
            self._prefilling.append(request)
        return _Part(request, tokens, takes=last)

    def _next_way_back(self, request: _Request, start: int) -> int:
        """Where the prompt is to be remembered next: a chunk ends there. The end of the prompt if nowhere."""
        end = len(request.prompt)
        if not self._runtime.sequential:
            return end
        return min((at for at in (*request.ways_back, (start // _EVERY + 1) * _EVERY) if start < at < end), default=end)

    def _remember(self, request: _Request) -> None:
        length = len(request.slot.history)
        if self._runtime.sequential and (length in request.ways_back or length % _EVERY == 0):
            self._runtime.remember(request.slot.index)

    def _compute(self, parts: list[_Part]) -> None:
        try:
            tokens = self._runtime.step([row for part in parts for row in part.rows()])
        except Exception as error:
            # A step only writes behind the slots' histories, so it can be made again: each part alone, to fail just the
            # requests that are to blame.
            if len(parts) > 1:
                for part in parts:
                    self._compute([part])
            else:
                log.debug("a step failed", exc_info=True)
                reason = error.message if isinstance(error, ColibriError) else f"{type(error).__name__}: {error}"
                self.fail(parts[0].request.id, "engine_error", f"The engine failed to compute a step: {reason}")
            return
        for part in parts:
            part.request.slot.extend(part.tokens)
            if part.request.token < 0:
                self._remember(part.request)
        for part, token in zip([part for part in parts if part.takes], tokens, strict=True):
            self._take(part.request, token)

    def _take(self, request: _Request, token: int) -> None:
        if request.decoding_since is None:
            request.decoding_since = self._clock()
        request.token = token
        request.drawn += 1
        if token in request.stops:
            self._end(request.id, "stop")
            return
        self._emit(Tokens(request.id, [token]))
        if request.drawn == request.limit:
            self._end(request.id, "length")

    def _end(self, id: int, finish: Literal["stop", "length", "cancelled"]) -> None:
        request = self._requests.get(id)
        if request is None:
            return
        self._drop(request)
        now = self._clock()
        decoding = now if request.decoding_since is None else request.decoding_since
        self._emit(Done(id, finish, decoding - request.accepted_at, now - decoding))

    def _drop(self, request: _Request) -> None:
        del self._requests[request.id]
        if request in self._prefilling:
            self._prefilling.remove(request)
        self.slots.release(request.slot.index)
