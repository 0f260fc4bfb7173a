"""Slots whose conversations outlive the process: read from files at the start, written to them behind the steps."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Condition, Thread
from typing import cast

from msgspec import Struct

from ..compute.rounding import Rounding
from ..compute.runtime import Image, Runtime
from ..settings import Settings
from .kv_files import Unusable, encode, load
from .kv_folder import Folder, folder_of
from .slots import Slots, Ways

log = logging.getLogger(__name__)

#: Bytes a second that a slot's file is written with at most, over time: a long conversation is saved less often.
RATE = 32 << 20

#: The most slots that any server has.
_MOST_SLOTS = 16

OnProgress = Callable[[str, float], None]


def kept_conversations(settings: Settings, runtime: Runtime) -> Conversations | None:
    """The slots of `runtime`, kept in files as the settings say, or None if they are not to be kept."""
    if not settings.kv_save or not runtime.identity:
        return None
    try:
        path = folder_of(settings)
    except (OSError, RuntimeError) as error:  # RuntimeError: a user without a home
        log.warning("conversations are not saved: no folder for them is found: %s", error)
        return None
    return Conversations(runtime, Folder(path, runtime.identity), cast("Rounding", settings.kv_disk))


class _Abandoned(Exception):
    """A slot was taken back while it was being saved."""


class _Job(Struct):
    """A slot that is being saved as it was when `tokens` were its history."""

    index: int
    tokens: list[int]
    abandoned: bool = False


class _Shared:
    """An Image that is read piece by piece, between what others do to the slot."""

    def __init__(self, image: Image, job: _Job, lock: Condition, on_read: Callable[[int], None]) -> None:
        self.length, self.snapshots, self.exact, self.size = image.length, image.snapshots, image.exact, image.size
        self._image, self._job, self._lock, self._on_read = image, job, lock, on_read

    def read(self, begin: int, count: int) -> bytes:
        with self._lock:
            if self._job.abandoned:
                raise _Abandoned
            data = self._image.read(begin, count)
        self._on_read(count)
        return data


class Conversations(Slots):
    """Slots that a thread saves after each turn, one at a time, while nobody uses them.

    A new turn may begin while its slot is being saved: rows that are there stay there. Only a slot that is taken back is
    given up, and saved after its next turn. `take` and `release` are the engine's; the thread holds the lock as long as it
    takes to read a piece.
    """

    def __init__(self, runtime: Runtime, folder: Folder, rounding: Rounding = "f32", *, rate: float = RATE) -> None:
        super().__init__(runtime.slots)
        self._runtimes = [runtime] if runtime.draft is None else [runtime, runtime.draft]
        self._folder, self._rounding, self._rate = folder, rounding, rate
        self._saved: list[Sequence[int]] = [()] * runtime.slots  # what each file holds, or should have held
        self._due = [0.0] * runtime.slots
        self._changed: set[int] = set()
        self._job: _Job | None = None
        self._closing = self._told = False
        self._on_progress: OnProgress = lambda stage, fraction: None
        self._lock = Condition()
        self._thread = Thread(target=self._work, name="conversations", daemon=True)

    def start(self, on_progress: OnProgress) -> Iterator[tuple[int, list[int]]]:
        """Read what was saved, the oldest first, and begin to save: slots with their tokens. A file that can't be used is
        told about and left alone."""
        found = sorted(self._found(), key=lambda each: each[2])
        for done, (index, path, _) in enumerate(found):
            on_progress("reading conversations", done / len(found))
            try:
                tokens = load(path, self._runtimes, index)
            except Unusable as error:
                log.warning("%s is ignored: it %s", path, error)
                continue
            self.resume(index, tokens)
            self._saved[index] = tokens
            log.info("slot %d goes on with %d tokens from %s", index, len(tokens), path)
            yield index, tokens
        self._thread.start()

    def _found(self) -> Iterator[tuple[int, Path, float]]:
        """Files to read by slot, with the times of their last changes."""
        for index in range(_MOST_SLOTS):
            usable: list[Path] = []
            for path, reason in self._folder.look(index):
                if reason:
                    log.warning("%s is ignored: it %s", path, reason)
                elif index >= len(self.all):
                    log.warning("%s is ignored: the server has slots 0 to %d (see --kv-slots)", path, len(self.all) - 1)
                else:
                    usable.append(path)
            for path in usable[:1]:
                with contextlib.suppress(OSError):
                    yield index, path, path.stat().st_mtime

    def take(self, index: int, ids: Sequence[int], ways: Ways | None = None) -> int:
        with self._lock:
            kept = super().take(index, ids, ways)
            if self._job is not None and self._job.index == index and kept < len(self._job.tokens):
                self._job.abandoned = True
            return kept

    def release(self, index: int) -> None:
        with self._lock:
            super().release(index)
            self._changed.add(index)
            self._lock.notify()

    def close(self, on_progress: OnProgress) -> None:
        """Save all that isn't, turns that were cut off included. No more steps may follow."""
        with self._lock:
            self._closing, self._on_progress = True, on_progress
            self._changed.update(range(len(self.all)))
            self._lock.notify()
        self._thread.join()

    # The thread.

    def _work(self) -> None:
        while (job := self._next()) is not None:
            began = time.monotonic()
            size = self._save(*job)
            with self._lock:
                self._job = None
                self._due[job[0].index] = began + size / self._rate

    def _next(self) -> tuple[_Job, list[tuple[str, Image]]] | None:
        """Wait for a slot that is to be saved; None at the end."""
        with self._lock:
            while True:
                now = time.monotonic()
                waiting = [index for index in self._changed if self._closing or not self.all[index].busy]
                index = min(waiting, key=self._due.__getitem__, default=None)
                if index is not None and (self._closing or self._due[index] <= now):
                    self._changed.discard(index)
                    if (job := self._begin(index)) is not None:
                        return job
                elif self._closing:
                    return None
                else:
                    self._lock.wait(None if index is None else self._due[index] - now)

    def _begin(self, index: int) -> tuple[_Job, list[tuple[str, Image]]] | None:
        history = self.all[index].history
        if not history or history == self._saved[index]:
            return None
        try:
            images = [(runtime.identity, runtime.image(index, len(history))) for runtime in self._runtimes]
        except Exception as error:
            self._tell(error)
            self._saved[index] = list(history)
            return None
        tokens = history[: images[0][1].length]
        if not tokens or tokens == self._saved[index]:
            return None
        self._job = _Job(index, tokens)
        return self._job, [(identity, image) for identity, image in images if image.length]

    def _save(self, job: _Job, images: list[tuple[str, Image]]) -> int:
        """Bytes written."""
        total = sum(image.size for _, image in images)
        done = 0

        def on_read(count: int) -> None:
            nonlocal done
            done += count
            self._on_progress("saving conversations", done / total)

        shared: list[tuple[str, Image]] = [
            (identity, _Shared(image, job, self._lock, on_read)) for identity, image in images
        ]
        size = 0
        try:
            size = self._folder.save(job.index, encode(job.tokens, shared, self._rounding))
            self._told = False
        except _Abandoned:
            return 0
        except Exception as error:
            self._tell(error)
        self._saved[job.index] = job.tokens
        return size

    def _tell(self, error: Exception) -> None:
        """Say once what is wrong, until it goes well again."""
        if not self._told:
            reason = error.strerror or error if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
            log.warning("conversations can't be saved in %s: %s", self._folder.path, reason)
        self._told = True
