"""A runtime without weights and an engine without a process, for tests of everything above the native runtime.

The scripted runtime keeps for every slot and position a digest of all tokens up to there, as a real one keeps keys and
values, and by default picks the next token from that digest alone. A row computed at a wrong position, a prefix reused
from the wrong slot or a state left over from another request therefore changes the tokens that follow.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import struct
import time
from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ..compute.plan import Codes
from ..compute.runtime import Phases, Row, Runtime
from ..engine.figures import Figures
from ..engine.frames import Ready, Submit, mark_of
from ..engine.planner import Planner
from ..engine.protocol import Status, unavailable
from ..engine.stream import OnEnd, Stream
from ..errors import CheckpointError, Unavailable
from ..settings import Settings
from .contents import BytesBlank, BytesImage

if TYPE_CHECKING:
    from ..compute.experts import Experts

#: Picks a token from the digest of the history, the row's position and the count of tokens picked before.
Pick = Callable[[int, int, int], int]


class ScriptedRuntime:
    """A Runtime whose next token is a function of the slot's tokens (and of seed and draw, if sampled).

    It refuses what the contract of Runtime forbids: gaps, rows out of order, too many rows. `pick` replaces the choice.
    """

    def __init__(
        self,
        *,
        context: int = 64,
        slots: int = 2,
        vocab: int = 32,
        max_rows: int = 8,
        pick: Pick | None = None,
        sequential: bool = False,
        codes: Codes | None = None,
        identity: str = "",
    ) -> None:
        self.identity = identity
        self.context, self.slots, self.vocab, self.max_rows, self.sequential = context, slots, vocab, max_rows, sequential
        self.codes = codes
        self.given = self.gives = 0
        self.draft: Runtime | None = None
        self.experts: Experts | None = None
        self.steps: list[list[Row]] = []
        self._pick = pick or (lambda digest, position, draw: digest % vocab)
        self._states: list[list[int]] = [[] for _ in range(slots)]
        self.remembered: list[set[int]] = [{0} for _ in range(slots)]  # lengths, by slot
        self._held: list[int] = [0] * slots
        self._read: list[int] = []  # the states whose logits can be read

    def step(self, rows: Sequence[Row]) -> list[int]:
        if not 0 < len(rows) <= self.max_rows:
            raise ValueError(f"{len(rows)} rows in a step; the limit is {self.max_rows}")
        self.steps.append(list(rows))
        expected: dict[int, int] = {}
        tokens: list[int] = []
        self._read = []
        for row in rows:
            state = self._states[row.slot]
            if not 0 <= row.token < self.vocab or row.position >= self.context:
                raise ValueError(f"row out of bounds: {row}")
            if row.codes and (self.codes is None or not self.codes.fit(row.codes)):
                raise ValueError(f"row with wrong codes: {row}")
            if row.position > len(state) or row.position != expected.setdefault(row.slot, row.position):
                raise ValueError(f"row out of order: {row}")
            if self.reach(row.slot, row.position) != row.position:
                raise ValueError(f"the slot can't be cut there: {row}")
            expected[row.slot] += 1
            del state[row.position :]
            state.append(digest(state[-1] if state else 0, mark_of(row.codes) if row.codes else row.token))
            if row.sampling is not None:
                tokens.append(self._choose(row, state[-1]))
            if row.sampling is not None or row.logits:
                self._read.append(state[-1])
        return tokens

    def _choose(self, row: Row, state: int) -> int:
        assert row.sampling is not None
        if row.sampling.temperature == 0:
            return self._pick(state, row.position, row.draw)
        if row.sampling.seed is None:
            raise ValueError("a sampled row needs a seed")
        return digest(digest(state, row.sampling.seed), row.draw) % self.vocab

    def logits(self, index: int) -> memoryview:
        scores = array("f", bytes(4 * self.vocab))
        scores[self._read[index] % self.vocab] = 1.0
        return memoryview(scores)

    def hidden(self, row: int) -> memoryview:
        raise ValueError("a scripted runtime has no hidden rows")

    def reach(self, slot: int, length: int) -> int:
        length = min(length, len(self._states[slot]))
        if not self.sequential or length == len(self._states[slot]):
            return length
        return max(at for at in {*self.remembered[slot], self._held[slot]} if at <= length)

    def rewind(self, slot: int, length: int) -> int:
        length = self.reach(slot, length)
        del self._states[slot][length:]
        self.remembered[slot] = {at for at in self.remembered[slot] if at <= length}
        self._held[slot] = self._held[slot] if self._held[slot] < length else 0
        return length

    def copy(self, source: int, target: int, length: int) -> int:
        if length > len(self._states[source]):
            raise ValueError(f"slot {source} holds {len(self._states[source])} positions, not {length}")
        length = self.reach(source, length)
        self._states[target] = self._states[source][:length]
        self.remembered[target] = {at for at in self.remembered[source] if at <= length}
        self._held[target] = 0
        return length

    def remember(self, slot: int) -> None:
        self.remembered[slot].add(len(self._states[slot]))

    def hold(self, slot: int) -> None:
        self._held[slot] = len(self._states[slot])

    def image(self, slot: int, length: int) -> BytesImage:
        length = self.reach(slot, length)
        snapshots = sorted({*self.remembered[slot], length} - {0}) if self.sequential else []
        states = self._states[slot][:length]
        return BytesImage(length, [at for at in snapshots if at <= length], struct.pack(f"<{length}Q", *states))

    def blank(self, slot: int, length: int, snapshots: Sequence[int]) -> BytesBlank:
        if not 1 <= length <= self.context or (bool(snapshots) and not self.sequential):
            raise ValueError(f"no slot has length {length} and snapshots {list(snapshots)}")
        self.rewind(slot, 0)

        def fill(data: bytes) -> None:
            self._states[slot] = list(struct.unpack(f"<{length}Q", data))
            self.remembered[slot] = {0, *snapshots}

        return BytesBlank(2 * length, fill)

    def phases(self) -> Phases:
        """It takes no time that counts."""
        return Phases()

    def expert_map(self) -> list[bytes]:
        """It has no experts that anybody could look at."""
        return []

    def describe(self) -> str:
        return "scripted runtime, no weights"


def digest(state: int, token: int) -> int:
    """The state after one more token."""
    data = (state % (1 << 64)).to_bytes(8, "little") + (token % (1 << 64)).to_bytes(8, "little")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def alone(ids: Sequence[int], count: int, *, vocab: int = 32, seed: int | None = None) -> list[int]:
    """The `count` tokens that a scripted runtime writes after a prompt when nothing goes wrong."""
    state = 0
    for token in ids:
        state = digest(state, token)
    tokens: list[int] = []
    for draw in range(count):
        token = (state if seed is None else digest(digest(state, seed), draw)) % vocab
        tokens.append(token)
        state = digest(state, token)
    return tokens


def replying(reply: Sequence[int], end: int) -> Pick:
    """A choice that writes `reply` after every prompt, and then the token `end`."""
    return lambda state, position, draw: reply[draw] if draw < len(reply) else end


class ScriptedEngine:
    """An Engine in this process: the real planner on a runtime, one step for each turn of the event loop.

    It is ready at once unless `ready=False`; `announce`, `crash` and `restart` play what a worker process can do.
    """

    def __init__(self, runtime: ScriptedRuntime | None = None, *, chunk: int = 4, ready: bool = True) -> None:
        self.runtime = runtime or ScriptedRuntime()
        self.streams: dict[int, Stream] = {}
        self.drafts: dict[str, tuple[int, int]] = {}
        self.figures = Figures()
        self._chunk = chunk
        self._planner = self._new_planner()
        self._status = Status("ready" if ready else "loading", "" if ready else "starting")
        self._listeners: list[Callable[[Status], None]] = []
        self._stepping: asyncio.Task[None] | None = None
        self.paused = False

    def _new_planner(self) -> Planner:
        return Planner(self.runtime, self._deliver, chunk=self._chunk)

    @property
    def status(self) -> Status:
        return self._status

    @property
    def ready(self) -> Ready | None:
        runtime = self.runtime
        if self._status.state == "loading":
            return None
        return Ready(runtime.context, runtime.slots, runtime.vocab, runtime.describe(), runtime.codes, runtime.sequential)

    def watch(self, listener: Callable[[Status], None]) -> None:
        self._listeners.append(listener)

    async def start(self) -> None:
        self.announce(self._status)

    async def close(self) -> None:
        self.crash(Unavailable("The server is shutting down.", code="engine_closed"), Status("closed"))
        if self._stepping is not None:
            self._stepping.cancel()
            await asyncio.gather(self._stepping, return_exceptions=True)

    def submit(self, submit: Submit, on_end: OnEnd | None = None) -> Stream:
        if self._status.state != "ready":
            raise unavailable(self._status)
        stream = self.streams[submit.id] = Stream(submit.id, on_end)
        self._planner.submit(submit)
        self._wake()
        return stream

    def stop(self, id: int) -> None:
        self._planner.stop(id)

    def cancel(self, id: int) -> None:
        self._planner.cancel(id)

    def nearest(self, ids: Sequence[int], free: Sequence[int]) -> int:
        return self._planner.slots.nearest(ids, free)

    # What tests play.

    def crash(self, error: Exception, status: Status | None = None) -> None:
        """Be as after the death of a worker: everything in flight fails with `error`."""
        self.announce(status or Status("restarting", str(error), restarts=self._status.restarts + 1))
        streams, self.streams = self.streams, {}
        for stream in streams.values():
            stream.fail(error)  # type: ignore[arg-type]
        self.runtime = ScriptedRuntime(
            context=self.runtime.context,
            slots=self.runtime.slots,
            vocab=self.runtime.vocab,
            max_rows=self.runtime.max_rows,
            pick=self.runtime._pick,
            codes=self.runtime.codes,
        )
        self._planner = self._new_planner()

    def restart(self) -> None:
        """Be ready (again)."""
        self.announce(Status("ready", restarts=self._status.restarts))

    def resume(self) -> None:
        """Go on after `paused` was set."""
        self.paused = False
        self._wake()

    def announce(self, status: Status) -> None:
        """Change status."""
        self._status = status
        for listener in self._listeners:
            listener(status)

    def _wake(self) -> None:
        if self._stepping is None or self._stepping.done():
            self._stepping = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while self._planner.busy and not self.paused:
            await asyncio.sleep(0)
            self._planner.step()

    def _deliver(self, frame: Any) -> None:
        stream = self.streams.get(frame.id)
        if stream is not None:
            stream.put(frame)
            if stream.ended:
                self.streams.pop(frame.id, None)


class Script(msgspec.Struct, frozen=True):
    """What a scripted worker does, as JSON in `Settings.model`.

    `vocab` and `context` size it. It loads for `loading` seconds; with `broken` it then fails with that message, with
    `deadly` it kills itself by that signal; `once` names a file: it loads only where that is missing, and makes it. Each
    step takes `step` seconds; a prompt that contains the token `poison` kills the process with SIGKILL, one with `raises`
    makes the step fail. `reply` is what it writes, else the scripted default. With `identity` its slots can be saved,
    which takes `saving` seconds each.
    """

    vocab: int = 32
    context: int = 64
    loading: float = 0.0
    broken: str | None = None
    deadly: int | None = None
    once: str | None = None
    step: float = 0.0
    poison: int | None = None
    raises: int | None = None
    reply: list[int] | None = None
    identity: str = ""
    saving: float = 0.0


#: What LocalEngine's `load` must be for a worker process with a scripted runtime.
LOAD = "colibri.testing.runtime:load"


class _WorkerRuntime(ScriptedRuntime):
    def __init__(self, script: Script, settings: Settings) -> None:
        pick = None if script.reply is None else replying(script.reply, 0)
        rows = settings.prefill_chunk + settings.kv_slots
        super().__init__(
            context=script.context,
            slots=settings.kv_slots,
            vocab=script.vocab,
            max_rows=rows,
            pick=pick,
            identity=script.identity,
        )
        self._script = script

    def step(self, rows: Sequence[Row]) -> list[int]:
        tokens = {row.token for row in rows}
        if self._script.poison in tokens:
            os.kill(os.getpid(), signal.SIGKILL)
        if self._script.raises in tokens:
            raise RuntimeError("a scripted failure")
        time.sleep(self._script.step)
        self.steps.clear()
        return super().step(rows)

    def image(self, slot: int, length: int) -> BytesImage:
        time.sleep(self._script.saving)
        return super().image(slot, length)


def load(settings: Settings, progress: Callable[[str, float], None]) -> ScriptedRuntime:
    """A worker's runtime by the Script in `settings.model`, or by the default script if that is a path."""
    text = settings.model or ""
    script = msgspec.json.decode(text, type=Script) if text.startswith("{") else Script()
    progress("reading the script", 0.5)
    time.sleep(script.loading)
    if script.deadly is not None:
        os.kill(os.getpid(), script.deadly)
    if script.once is not None:
        try:
            open(script.once, "x").close()
        except FileExistsError:
            raise CheckpointError("was loaded once", file="model.gguf") from None
    if script.broken is not None:
        raise CheckpointError(script.broken, file="model.gguf")
    return _WorkerRuntime(script, settings)
