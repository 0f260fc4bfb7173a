"""What an engine tells about itself while it works: where experts are, which are chosen, and where the time goes."""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec import Struct

from ..compute.runtime import Phases, Runtime
from .frames import Accept, Done, Error, ExpertMap, FromEngine, Profile, Tiers, Tokens

#: Seconds between maps of experts.
EVERY = 1.5

_CHOSEN, _HELD = 128, 64


class _Turn(Struct):
    """A request that is being answered."""

    began: float
    phases: Phases
    prompt: int
    completion: int = 0


class Telemetry:
    """Passes the engine's frames on, and adds its own. `look` comes between steps."""

    def __init__(
        self, runtime: Runtime, emit: Callable[[FromEngine], None], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._runtimes = [runtime] if runtime.draft is None else [runtime, runtime.draft]
        self._emit, self._clock = emit, clock
        self._turns: dict[int, _Turn] = {}
        self._looked = clock()
        self._tiers: Tiers | None = None

    def emit(self, frame: FromEngine) -> None:
        """A frame of a request, on its way to the gateway."""
        self._emit(frame)
        if isinstance(frame, Accept):
            self._turns[frame.id] = _Turn(self._clock(), self._phases(), frame.prompt)
        elif isinstance(frame, Tokens) and frame.id in self._turns:
            self._turns[frame.id].completion += len(frame.ids)
        elif isinstance(frame, Done | Error) and frame.id is not None and frame.id in self._turns:
            turn = self._turns.pop(frame.id)
            spent = self._phases().since(turn.phases)
            self._emit(Profile(self._clock() - turn.began, turn.prompt, turn.completion, spent))

    def start(self) -> None:
        """Tell where experts are at the beginning."""
        self._map()

    def look(self) -> None:
        """Tell what has changed, if it is time."""
        if self._clock() - self._looked >= EVERY:
            self._map()

    def _map(self) -> None:
        self._looked = self._clock()
        layers = [layer for runtime in self._runtimes for layer in runtime.expert_map()]
        if not layers:
            return
        tiers = self._tiers_of(layers)
        if tiers != self._tiers or any(max(layer) >= _CHOSEN for layer in layers):
            self._tiers = tiers
            cols = max(map(len, layers))
            self._emit(ExpertMap(len(layers), cols, b"".join(layer.ljust(cols, b"\0") for layer in layers)))
            self._emit(tiers)

    def _tiers_of(self, layers: list[bytes]) -> Tiers:
        held = sum(1 for layer in layers for expert in layer if expert & _HELD)
        caches = [runtime.experts.facts() for runtime in self._runtimes if runtime.experts is not None]
        banks = [bank for cache in caches for bank in cache.banks]
        there = sum(bank.held * bank.expert_bytes for bank in banks)
        return Tiers(
            held, sum(map(len, layers)) - held, there, sum(bank.experts * bank.expert_bytes for bank in banks) - there
        )

    def _phases(self) -> Phases:
        return self._runtimes[0].phases()
