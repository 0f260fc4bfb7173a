"""What is done for streamed experts between steps: those that are needed most are read before anybody asks, and memory is
given back when others need it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from ..compute import memory
from ..compute.budget import GB
from ..compute.runtime import Runtime
from ..settings import Settings
from . import usage
from .kv_folder import folder_of

if TYPE_CHECKING:
    from ..compute.experts import Experts  # of the native library, which the gateway does without

log = logging.getLogger(__name__)

#: Seconds between looks at the memory, and between saves of the counts.
LOOK, SAVE = 5.0, 60.0

#: The share of a cache that is pinned for what was needed most, and the share of a layer that a cache must hold for that:
#: a smaller one does better with what is needed just now.
PINNED, LEAST_PINNED = 0.5, 0.06

#: How much more memory the process may take than it was given before experts have to go.
TOLERANCE = 1.05


def upkeep_of(settings: Settings, runtime: Runtime) -> Upkeep | None:
    """Of the runtime and its draft head, as far as they stream experts; None if none does."""
    caches = [each.experts for each in (runtime, runtime.draft) if each is not None and each.experts is not None]
    if not caches:
        return None
    folder: Path | None = None
    if settings.usage:
        try:
            folder = folder_of(settings)
        except (OSError, RuntimeError) as error:
            log.warning("which experts are needed is not remembered: no folder for it is found: %s", error)
    return Upkeep(caches, folder, int(settings.ram * GB))


def _taken() -> int:
    return int(psutil.Process().memory_info().rss)


class Upkeep:
    """Looks after the experts of some runtimes. Not for concurrent use: `look` comes between steps."""

    def __init__(
        self,
        caches: list[Experts],
        folder: Path | None,
        ram: int,
        *,
        free: Callable[[], int] = memory.available,
        taken: Callable[[], int] = _taken,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`ram`: bytes that the process may take, 0 if nobody said. `free` and `taken` tell the bytes that are free and that
        it takes."""
        self._caches, self._folder, self._ram = caches, folder, ram
        self._free, self._taken, self._clock = free, taken, clock
        self._whole = [cache.facts().bytes for cache in caches]
        self._reserve = max(256 << 20, memory.total() // 50)
        self._before = [usage.read(folder, cache.identity) if folder else () for cache in caches]
        self._looked = self._saved = clock()

    def start(self) -> None:
        """Begin to read the experts that were needed most, and pin some of them."""
        for cache, counts in zip(self._caches, self._before, strict=True):
            rooms = iter(cache.facts().banks)
            for layer, bank in enumerate(cache.streamed):
                facts = next(rooms)
                known = counts[layer] if layer < len(counts) and len(counts[layer]) == facts.experts else ()
                order = usage.hottest(known or [0.0] * facts.experts)
                if sum(known) >= usage.ENOUGH and facts.room >= LEAST_PINNED * facts.experts:
                    cache.pin(bank, order[: int(PINNED * facts.room)])
                cache.preload(bank, order[: facts.room])

    def look(self) -> None:
        """Do what is due by now."""
        now = self._clock()
        if now - self._looked >= LOOK:
            self._looked = now
            self._fit()
        if now - self._saved >= SAVE:
            self._saved = now
            self.save()

    def save(self) -> None:
        """Keep the counts for the next start."""
        if self._folder is None:
            return
        for cache, before in zip(self._caches, self._before, strict=True):
            uses = [cache.uses(bank) for bank in cache.streamed]
            if any(map(any, uses)):
                usage.write(self._folder, cache.identity, usage.added(before, uses))

    def _fit(self) -> None:
        """Give memory back where it runs short, and take it again, little by little, when there is enough."""
        free = self._free()
        short = self._reserve - free
        if self._ram:
            short = max(short, self._taken() - int(TOLERANCE * self._ram))
        now = [cache.facts().bytes for cache in self._caches]
        if short > 0:
            self._limit([room - short * room // sum(now) for room in now])
        elif sum(now) < sum(self._whole) and free > 2 * self._reserve:
            more = (free - 2 * self._reserve) // 2
            if self._ram:
                more = min(more, self._ram - self._taken())
            if more > 0:
                self._limit([room + more * whole // sum(self._whole) for room, whole in zip(now, self._whole, strict=True)])

    def _limit(self, wanted: list[int]) -> None:
        before = sum(cache.facts().bytes for cache in self._caches)
        for cache, room, whole in zip(self._caches, wanted, self._whole, strict=True):
            cache.limit(min(whole, max(room, cache.least)))
        after = sum(cache.facts().bytes for cache in self._caches)
        if after != before:
            why = "memory runs short" if after < before else "there is memory again"
            log.warning("%s: experts now have %.2f GB instead of %.2f", why, after / GB, before / GB)
