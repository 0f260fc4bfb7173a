"""Continuous batching: which rows each step computes, and what becomes of the tokens it picks."""

from __future__ import annotations

import logging
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from ..compute.runtime import Row, Runtime
from ..errors import ColibriError
from ..family import Sampling
from .drafts.choice import Drafts
from .drafts.source import Ask, Draft
from .fairness import Fairness
from .frames import Accept, Done, Error, Submit, Tokens
from .limits import refusal
from .slots import Slot, Slots

log = logging.getLogger(__name__)

Emit = Callable[[Accept | Tokens | Done | Error], None]

_SEEDS = 1 << 64

#: How far apart a prompt is remembered at least, in tokens, where slots can't be cut anywhere.
_EVERY = 1024


class _Request:
    """A request in a slot. `tokens` are its prompt and what was picked; the slot's history is a beginning of them."""

    def __init__(self, submit: Submit, slot: Slot, limit: int, now: float) -> None:
        self.id = submit.id
        self.tokens = list(submit.ids)
        self.prompt = len(submit.ids)
        self.codes = dict(zip((at for at, id in enumerate(submit.ids) if id < 0), submit.media, strict=True))
        self.slot = slot
        self.limit = limit
        self.stops = frozenset(submit.stop_ids)
        seed = submit.sampling.seed
        self.sampling: Sampling = replace(submit.sampling, seed=random.getrandbits(64) if seed is None else seed % _SEEDS)
        self.drawn = 0
        self.drafts: dict[str, tuple[int, int]] = {}
        self.ways_back = set(submit.ways_back)
        self.accepted_at = now
        self.decoding_since: float | None = None

    @property
    def left(self) -> int:
        """How many tokens are there that the slot does not hold."""
        return len(self.tokens) - len(self.slot.history)


class _Part(Struct, frozen=True):
    """What a step computes of one request: its next `count` tokens, and drafts behind them. If these tokens are the last
    there are, the last one and every draft pick a new one."""

    request: _Request
    count: int
    draft: Draft | None = None

    @property
    def start(self) -> int:
        return len(self.request.slot.history)

    @property
    def takes(self) -> bool:
        return self.count == self.request.left

    @property
    def drafted(self) -> Sequence[int]:
        return self.draft.tokens if self.draft is not None else ()

    def ask(self) -> Ask:
        request = self.request
        most = request.limit - request.drawn - 1
        return Ask(request.slot.index, request.tokens, most, request.sampling, request.drawn, request.stops)

    def rows(self) -> list[Row]:
        request, slot, start = self.request, self.request.slot.index, self.start
        rows = [
            Row(token, slot, at) if token >= 0 else Row(0, slot, at, codes=request.codes[at])
            for at, token in enumerate((*request.tokens[start : start + self.count], *self.drafted), start)
        ]
        if self.takes:
            for draw, i in enumerate(range(self.count - 1, len(rows)), request.drawn):
                rows[i] = replace(rows[i], sampling=request.sampling, draw=draw)
        return rows


class Planner:
    """Runs requests on a runtime, step by step. Not for concurrent use.

    A step holds the next row of every decoding request and at most `chunk` rows of one prompt, beside answers no more than
    `fairness` allows; prompts take turns, so a long one delays running answers by no more than that, and other prompts by no
    more than their share. `drafts` get rows that are left over.
    """

    def __init__(
        self,
        runtime: Runtime,
        emit: Emit,
        *,
        chunk: int,
        drafts: Drafts | None = None,
        fairness: Fairness | None = None,
        slots: Slots | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        if runtime.max_rows < runtime.slots:
            raise ValueError(f"a runtime of {runtime.slots} slots must take that many rows, not {runtime.max_rows}")
        self.slots = slots or Slots(runtime.slots)
        self._runtime = runtime
        self._emit = emit
        self._chunk = max(1, chunk)
        self._drafts = drafts
        self._fairness = fairness
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
        cached = self.slots.take(index, submit.ids, self._drafts or runtime)
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
        decoding = [request for request in self._requests.values() if request.drawn]
        spare = self._runtime.max_rows - len(decoding) - bool(self._prefilling)
        parts = []
        for request in decoding:  # what a draft has cost a slot that can't be cut is computed again as far as there is room
            parts.append(_Part(request, min(request.left, 1 + spare)))
            spare -= parts[-1].count - 1
        if self._prefilling:
            if self._fairness is not None:
                spare = min(spare, self._fairness.rows(len(decoding), self._chunk) - 1)
            parts.append(self._chunk_of(self._prefilling.popleft(), room=spare + 1))
        if parts:
            self._compute(self._with_drafts(parts))

    def _with_drafts(self, parts: list[_Part]) -> list[_Part]:
        if self._drafts is None:
            return parts
        asks = [part.ask() for part in parts if part.takes and part.request.drawn]
        drafts = self._drafts.propose(asks, sum(part.count for part in parts))
        return [replace(part, draft=drafts.get(part.request.slot.index)) for part in parts]

    def _chunk_of(self, request: _Request, room: int) -> _Part:
        """The next tokens of a prompt; if more follow, it goes to the end of the line."""
        start = len(request.slot.history)
        end = min(start + min(self._chunk, room), self._next_way_back(request, start))
        if end < request.prompt:
            self._prefilling.append(request)
        return _Part(request, end - start)

    def _next_way_back(self, request: _Request, start: int) -> int:
        """Where the prompt is to be remembered next: a chunk ends there. The end of the prompt if nowhere."""
        end = request.prompt
        if not self._runtime.sequential:
            return end
        return min((at for at in (*request.ways_back, (start // _EVERY + 1) * _EVERY) if start < at < end), default=end)

    def _remember(self, request: _Request) -> None:
        length = len(request.slot.history)
        if self._runtime.sequential and (length in request.ways_back or length % _EVERY == 0):
            self._runtime.remember(request.slot.index)

    def _compute(self, parts: list[_Part]) -> None:
        began = self._clock()
        drawn = [part.request.drawn > 0 for part in parts]
        answers = all(drawn)
        rows = [part.rows() for part in parts]
        try:
            for part in parts:
                if part.draft is not None:
                    self._runtime.hold(part.request.slot.index)
            picked = iter(self._runtime.step([row for own in rows for row in own]))
        except Exception as error:
            self._compute_again(parts, error)
            return
        first = 0
        for part, own in zip(parts, rows, strict=True):
            self._settle(part, [next(picked) for row in own if row.sampling is not None], first)
            first += len(own)
        took = self._clock() - began
        if self._drafts is not None and answers:
            self._drafts.took(first, took)
        if self._fairness is not None:
            prompt = sum(part.count for part, known in zip(parts, drawn, strict=True) if not known)
            self._fairness.took(sum(drawn), prompt, took)

    def _compute_again(self, parts: list[_Part], error: Exception) -> None:
        """After a step that failed. It only wrote behind the slots' histories, so it can be made again: each part alone and
        without drafts, to fail just the requests that are to blame."""
        if len(parts) == 1 and parts[0].draft is None:
            log.debug("a step failed", exc_info=error)
            reason = error.message if isinstance(error, ColibriError) else f"{type(error).__name__}: {error}"
            self.fail(parts[0].request.id, "engine_error", f"The engine failed to compute a step: {reason}")
            return
        for part in parts:
            if part.draft is not None:
                self._runtime.rewind(part.request.slot.index, part.start)
            self._compute([replace(part, draft=None)])
            self._with_drafts([])  # whoever follows the steps reads each one's rows before the next

    def _settle(self, part: _Part, picked: list[int], first: int) -> None:
        """Take in what a step, whose row `first` is the part's first one, made of a part."""
        request, slot, start = part.request, part.request.slot, part.start
        slot.extend(request.tokens[start : start + part.count])
        if not request.drawn:
            self._remember(request)
        right, finish = self._take(request, part.drafted, picked) if picked else (0, None)
        if part.draft is not None and self._drafts is not None:
            self._drafts.judge(slot.index, part.draft, right)
            drafted, found = request.drafts.get(part.draft.source, (0, 0))
            request.drafts[part.draft.source] = drafted + len(part.drafted), found + right
        slot.extend(part.drafted[:right])
        if right < len(part.drafted):
            slot.cut(self._runtime.rewind(slot.index, len(slot.history)))
        if self._drafts is not None:
            self._drafts.follow(slot.index, first, start, part.count + right, request.tokens)
        if finish is not None:
            self._end(request.id, finish)

    def _take(
        self, request: _Request, drafted: Sequence[int], picked: Sequence[int]
    ) -> tuple[int, Literal["stop", "length"] | None]:
        """Emit what was picked, as far as it is what would have been picked without drafts. Returns how many drafts were
        right, and why the request ends, if it does."""
        if request.decoding_since is None:
            request.decoding_since = self._clock()
        before = request.drawn
        finish: Literal["stop", "length"] | None = None
        found = []
        for token, draft in zip_longest(picked, drafted):
            request.drawn += 1
            if token in request.stops:
                finish = "stop"
                break
            found.append(token)
            if request.drawn == request.limit:
                finish = "length"
            if finish is not None or token != draft:
                break
        request.tokens += found
        if found:
            self._emit(Tokens(request.id, found))
        return request.drawn - before - 1, finish

    def _end(self, id: int, finish: Literal["stop", "length", "cancelled"]) -> None:
        request = self._requests.get(id)
        if request is None:
            return
        self._drop(request)
        now = self._clock()
        decoding = now if request.decoding_since is None else request.decoding_since
        self._emit(Done(id, finish, decoding - request.accepted_at, now - decoding, request.drafts))

    def _drop(self, request: _Request) -> None:
        del self._requests[request.id]
        if request in self._prefilling:
            self._prefilling.remove(request)
        if self._drafts is not None:
            self._drafts.release(request.slot.index)
        self.slots.release(request.slot.index)
