"""Where KV files lie: `.coli_kv` for slot 0, `.coli_kv.1` for slot 1 and so on, and how they are replaced."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..settings import Settings
from .kv_files import OTHERS, Unusable, owner

log = logging.getLogger(__name__)

#: Bytes after which what was written is brought to the disk, so that nothing has to wait for all of it at the end.
_FLUSH = 64 << 20


def folder_of(settings: Settings) -> Path:
    """Where the settings say that the files go, else the model's folder, or one of the user's if that can't be written."""
    if settings.kv_dir is not None:
        return Path(settings.kv_dir).expanduser()
    model = Path(settings.model or "")
    home = model if model.is_dir() else model.parent
    if os.access(home, os.W_OK | os.X_OK):
        return home
    home = home.resolve()
    states = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    path = states / "colibri" / f"{home.name}-{hashlib.sha256(os.fsencode(home)).hexdigest()[:8]}"
    log.info("%s can't be written: conversations are saved in %s", home, path)
    return path


class Folder:
    """The KV files of the model with this identity. A file that isn't the model's is never touched: if the slot's name is
    taken, part of the identity is added to it."""

    def __init__(self, path: Path, identity: str) -> None:
        self.path = path
        self._identity = identity

    def names(self, slot: int) -> tuple[Path, Path]:
        """The slot's name, and the one to take where that is another model's."""
        name = ".coli_kv" if slot == 0 else f".coli_kv.{slot}"
        return self.path / name, self.path / f"{name}-{self._identity[:8]}"

    def look(self, slot: int) -> Iterator[tuple[Path, str]]:
        """The files that have one of the slot's names, each with the reason not to use it, "" for one of this model."""
        for path in self.names(slot):
            try:
                identity = owner(path)
            except Unusable as error:
                yield path, str(error)
            else:
                if identity is not None:
                    yield path, "" if identity == self._identity else OTHERS

    def save(self, slot: int, pieces: Iterable[bytes]) -> int:
        """Write the slot's file anew; at any instant the old or the new one is there, whole. Returns its bytes.

        What `pieces` raises comes through, with the old file in place. Raises OSError.
        """
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._place(slot)
        temporary = self.path / f"{self.names(slot)[1].name}.tmp"
        descriptor = _open_alone(temporary)
        try:
            try:
                size = _write(descriptor, pieces)
                if self._place(slot) != path:
                    raise FileExistsError(f"{path.name} was taken by another model meanwhile")
                os.replace(temporary, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise
        finally:
            os.close(descriptor)
        _sync_folder(self.path)
        return size

    def _place(self, slot: int) -> Path:
        """The slot's file, if there is one of this model, else a name that is free."""
        there = dict(self.look(slot))
        for free in ("", None):
            for path in self.names(slot):
                if there.get(path) == free:
                    return path
        raise FileExistsError(f"{' and '.join(path.name for path in there)} are not this model's")


def _open_alone(path: Path) -> int:
    """A new file that no other process is writing; conversations are nobody else's to read. What a process left behind that
    was killed is written over."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BlockingIOError(f"another process is writing {path}") from None
        except OSError:
            pass  # a file system without locks
        if not os.path.samestat(os.fstat(descriptor), os.stat(path)):  # renamed between the two calls
            raise BlockingIOError(f"another process is writing {path}")
        os.ftruncate(descriptor, 0)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _write(descriptor: int, pieces: Iterable[bytes]) -> int:
    size = unflushed = 0
    for piece in pieces:
        view = memoryview(piece)
        while view:
            view = view[os.write(descriptor, view) :]
        size += len(piece)
        unflushed += len(piece)
        if unflushed >= _FLUSH:
            os.fsync(descriptor)
            unflushed = 0
    os.fsync(descriptor)
    if hasattr(os, "posix_fadvise"):  # the page cache is for weights
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    return size


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
