"""The engine on this machine: a worker process, started, watched and started again by the gateway."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from ..errors import ColibriError, EngineError, Unavailable
from ..settings import Settings
from .exits import in_words
from .figures import Figures
from .frames import (
    Accept,
    Cancel,
    Done,
    Error,
    ExpertMap,
    FromEngine,
    Profile,
    Progress,
    Ready,
    Resumed,
    Stop,
    Submit,
    Tiers,
    Tokens,
)
from .process import Process
from .protocol import State, Status, unavailable
from .slots import Slots
from .stream import OnEnd, Stream
from .wire import Malformed

log = logging.getLogger(__name__)

#: Starts that may fail in a row before an engine that has worked is given up, and one that never has.
START_LIMIT, FIRST_START_LIMIT = 5, 2

#: Longest pause before another start, in seconds.
_LONGEST_PAUSE = 30.0


class _Flight(Struct):
    """A request the engine has. `fault` replaces its end: part of it could not be read."""

    stream: Stream
    slot: int | None
    fault: ColibriError | None = None


class LocalEngine:
    """An Engine in a process of its own. `load` names the function that makes its runtime (see worker.load).

    A process that dies is started again, at once the first time, then after `pause` seconds and twice as long each
    time until a request has been answered. Too many failed starts in a row, or the word of the first process that the
    model can't be loaded, end in the state `failed`.
    """

    def __init__(self, settings: Settings, *, load: str | None = None, pause: float = 0.5) -> None:
        self._settings = settings
        self._load = load
        self._pause = pause
        self._status = Status("loading", "starting")
        self._listeners: list[Callable[[Status], None]] = []
        self._process: Process | None = None
        self._flights: dict[int, _Flight] = {}
        self._slots: Slots | None = None
        self._resumed: list[Resumed] = []
        self._ready: Ready | None = None
        self._figures = Figures()
        self._reason: str | None = None
        self._drafts: dict[str, tuple[int, int]] = {}
        self._deaths = 0
        self._failed_starts = 0
        self._life: asyncio.Task[None] | None = None

    @property
    def status(self) -> Status:
        return self._status

    @property
    def ready(self) -> Ready | None:
        return self._ready

    @property
    def drafts(self) -> Mapping[str, tuple[int, int]]:
        return self._drafts

    @property
    def figures(self) -> Figures:
        return self._figures

    @property
    def pid(self) -> int | None:
        """The worker's process id while there is one."""
        return None if self._process is None else self._process.pid

    def watch(self, listener: Callable[[Status], None]) -> None:
        self._listeners.append(listener)

    async def start(self) -> None:
        if self._life is None:
            self._life = asyncio.create_task(self._live(), name="engine")

    async def close(self) -> None:
        if self._life is not None:
            self._life.cancel()
            await asyncio.gather(self._life, return_exceptions=True)
        self._change("closed")
        self._fail_all(Unavailable("The server is shutting down.", code="engine_closed"))

    def submit(self, submit: Submit, on_end: OnEnd | None = None) -> Stream:
        if self._status.state != "ready" or self._process is None:
            raise unavailable(self._status)
        try:
            self._process.send(submit)
        except ValueError as error:
            raise EngineError(f"The request can't be sent to the engine: {error}.") from None
        stream = Stream(submit.id, on_end)
        self._flights[submit.id] = _Flight(stream, submit.slot)
        if self._slots is not None and submit.slot is not None:
            kept = self._slots.take(submit.slot, submit.ids)
            self._slots.all[submit.slot].extend(submit.ids[kept:])
        return stream

    def stop(self, id: int) -> None:
        if id in self._flights and self._process is not None:
            self._process.send(Stop(id))

    def cancel(self, id: int) -> None:
        if id in self._flights and self._process is not None:
            self._process.send(Cancel(id))

    def nearest(self, ids: Sequence[int], free: Sequence[int]) -> int:
        return free[0] if self._slots is None else self._slots.nearest(ids, free)

    # One process after another.

    async def _live(self) -> None:
        while True:
            reason = await self._live_once()
            log.debug("the engine is gone: %s", reason)
            self._deaths += 1
            self._failed_starts += 1
            if self._hopeless():
                self._change("failed", reason)
                self._fail_all(unavailable(self._status))
                return
            self._change(self._between, reason)
            message = f"{reason[:1].upper()}{reason[1:]} while it worked on this request. It is being started again."
            self._fail_all(EngineError(message, code="engine_crashed"))
            if self._deaths > 1:
                await asyncio.sleep(min(_LONGEST_PAUSE, self._pause * 2 ** (self._deaths - 2)))

    def _hopeless(self) -> bool:
        if self._ready is None:
            return self._reason is not None or self._failed_starts >= FIRST_START_LIMIT
        return self._failed_starts >= START_LIMIT

    async def _live_once(self) -> str:
        """The life of one process; returns why it ended."""
        self._reason = None
        self._resumed = []
        try:
            process = self._process = await Process.start(self._settings, self._load, self._receive)
        except OSError as error:
            return f"the engine could not be started: {error}"
        try:
            await process.lost
            self._change(self._between)  # from here on nothing is submitted
            words = in_words(await process.reap())
        finally:
            self._process = None
            await process.end()
        return self._reason or f"the engine {words}"

    @property
    def _between(self) -> State:
        """The state while there is no process: an engine that never was ready is still loading."""
        return "loading" if self._ready is None else "restarting"

    def _receive(self, frame: FromEngine | Malformed) -> None:
        if isinstance(frame, Malformed):
            self._receive_malformed(frame)
        elif isinstance(frame, Resumed):
            self._resumed.append(frame)
        elif isinstance(frame, Progress):
            if self._process is None:
                return  # it is ending
            loading = self._status.state == "loading"
            self._change(self._between, frame.stage if loading else self._status.detail, frame.fraction)
        elif isinstance(frame, Ready):
            self._ready, self._slots = frame, Slots(frame.slots)
            for resumed in self._resumed:
                self._slots.resume(resumed.slot, resumed.ids)
            self._failed_starts = 0
            self._change("ready")
        elif isinstance(frame, Tiers | ExpertMap | Profile):
            self._figures = self._figures.with_frame(frame)
        elif frame.id is None:
            self._reason = frame.message
        elif frame.id in self._flights:
            self._deliver(frame, self._flights[frame.id])

    def _deliver(self, frame: Accept | Tokens | Done | Error, flight: _Flight) -> None:
        slot = None if self._slots is None or flight.slot is None else self._slots.all[flight.slot]
        if isinstance(frame, Tokens) and slot is not None:
            slot.extend(frame.ids)
        if isinstance(frame, Done | Error):
            del self._flights[flight.stream.id]
            if self._slots is not None and slot is not None:
                self._slots.release(slot.index)
            if isinstance(frame, Done):
                self._deaths = 0
                for source, (drafted, right) in frame.drafts.items():
                    before = self._drafts.get(source, (0, 0))
                    self._drafts[source] = before[0] + drafted, before[1] + right
            if flight.fault is not None:
                flight.stream.fail(flight.fault)
        flight.stream.put(frame)

    def _receive_malformed(self, frame: Malformed) -> None:
        log.warning("a frame from the engine can't be read: %s", frame.reason)
        if frame.id not in self._flights:
            return
        flight = self._flights[frame.id]
        flight.fault = EngineError(f"The engine's answer can't be read: {frame.reason}.", code="engine_bad_frame")
        if frame.kind in ("done", "error"):
            del self._flights[frame.id]
            flight.stream.fail(flight.fault)
        else:  # its slot is busy until the engine says so
            self.cancel(frame.id)

    def _fail_all(self, error: ColibriError) -> None:
        self._slots = None
        flights, self._flights = self._flights, {}
        for flight in flights.values():
            flight.stream.fail(error)

    def _change(self, state: State, detail: str = "", fraction: float = 0.0) -> None:
        restarts = self._status.restarts + (state == "restarting" != self._status.state)
        self._status = Status(state, detail, fraction, restarts)
        for listener in self._listeners:
            listener(self._status)
