"""Where KV files lie, and that a crash at any instant leaves the old or the new one."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from colibri.engine import kv_folder
from colibri.engine.kv_files import load
from colibri.engine.kv_folder import Folder, folder_of
from colibri.settings import Settings
from colibri.testing.runtime import ScriptedRuntime

from .saving import filled, saved, write

OLD, NEW = [1, 2, 3], [4, 5, 6, 7, 8, 9]


class Killed(BaseException):
    """The process ends here."""


def pieces(tokens: list[int], identity: str = "a model") -> Iterator[bytes]:
    data = saved(filled(tokens, ScriptedRuntime(identity=identity)), tokens)
    for start in range(0, len(data), 10):
        yield data[start : start + 10]


def held(folder: Folder, slot: int = 0, identity: str = "a model") -> list[int] | None:
    """The tokens that a server would go on with."""
    found = [path for path, reason in folder.look(slot) if not reason]
    return load(found[0], [ScriptedRuntime(identity=identity)], 0) if found else None


def test_a_file_a_slot(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "a model")
    for slot, tokens in ((0, OLD), (1, NEW), (11, OLD)):
        size = folder.save(slot, pieces(tokens))
        assert size == folder.names(slot)[0].stat().st_size
        assert held(folder, slot) == tokens
    assert sorted(os.listdir(tmp_path)) == [".coli_kv", ".coli_kv.1", ".coli_kv.11"]
    assert held(folder, 2) is None
    folder.save(0, pieces(NEW))
    assert held(folder) == NEW
    assert sorted(os.listdir(tmp_path)) == [".coli_kv", ".coli_kv.1", ".coli_kv.11"]


def test_conversations_are_nobody_elses_to_read(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "new" / "folder", "a model")
    folder.save(0, pieces(OLD))
    assert (tmp_path / "new" / "folder" / ".coli_kv").stat().st_mode & 0o077 == 0
    assert (tmp_path / "new" / "folder").stat().st_mode & 0o077 == 0


class Failing:
    """Fails every call that changes anything on disk, from the n-th on."""

    def __init__(self, n: int, failure: type[BaseException], patched: pytest.MonkeyPatch) -> None:
        self.left, self.failure = n, failure
        for name in ("open", "ftruncate", "write", "fsync", "replace", "unlink", "posix_fadvise"):
            patched.setattr(os, name, partial(self.call, name, getattr(os, name)))

    def call(self, name: str, real: Callable[..., Any], *args: Any) -> Any:
        if name == "open" and not args[1] & os.O_CREAT:
            return real(*args)
        self.left -= 1
        if self.left >= 0:
            return real(*args)
        if name == "write" and self.failure is Killed:  # half of it got there
            real(args[0], args[1][: len(args[1]) // 2])
        raise self.failure(errno.EIO, "no")


@pytest.mark.parametrize("there", [None, OLD])
@pytest.mark.parametrize("failure", [Killed, OSError])
def test_a_crash_at_any_call_leaves_the_old_or_the_new_file(
    there: list[int] | None, failure: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(tmp_path, "a model")
    seen = set()
    for n in range(1000):
        for path in tmp_path.iterdir():
            path.unlink()
        if there is not None:
            folder.save(0, pieces(there))
        with monkeypatch.context() as patched:
            failing = Failing(n, failure, patched)
            with contextlib.suppress(failure):
                folder.save(0, pieces(NEW))
        if failing.left >= 0:
            break
        seen.add(str(held(folder)))
        folder.save(0, pieces(NEW))  # what the crash has left is in nobody's way
        assert held(folder) == NEW
        assert os.listdir(tmp_path) == [".coli_kv"]
    assert seen == {str(there), str(NEW)}
    assert n > 10


def test_what_ends_the_pieces_ends_the_writing(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "a model")
    folder.save(0, pieces(OLD))

    def broken() -> Iterator[bytes]:
        yield b"abc"
        raise LookupError("gone")

    with pytest.raises(LookupError):
        folder.save(0, broken())
    assert held(folder) == OLD
    assert os.listdir(tmp_path) == [".coli_kv"]


def test_what_is_on_its_way_is_brought_to_the_disk_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_folder, "_FLUSH", 100)
    flushed: list[int] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (flushed.append(os.fstat(fd).st_size), real(fd)))
    size = Folder(tmp_path, "a model").save(0, pieces(NEW))
    assert flushed[: size // 100] == [100 * (i + 1) for i in range(size // 100)]


# Files of others.


@pytest.mark.parametrize("stranger", ["another model", b"a diary", b"", b"COLIKV\r\n"])
def test_a_file_that_is_not_the_models_is_left_alone(stranger: str | bytes, tmp_path: Path) -> None:
    data = b"".join(pieces(OLD, stranger)) if isinstance(stranger, str) else stranger
    theirs = write(tmp_path / ".coli_kv", data)
    folder = Folder(tmp_path, "0123456789abcdef")
    [(path, reason)] = folder.look(0)
    assert path == theirs
    assert reason
    for tokens in (NEW, OLD):
        folder.save(0, pieces(tokens, "0123456789abcdef"))
        assert held(folder, 0, "0123456789abcdef") == tokens
    assert theirs.read_bytes() == data
    assert sorted(os.listdir(tmp_path)) == [".coli_kv", ".coli_kv-01234567"]
    if isinstance(stranger, str):
        assert held(Folder(tmp_path, stranger), 0, stranger) == OLD
    write(tmp_path / ".coli_kv-01234567", b"?")
    with pytest.raises(FileExistsError, match="are not this model's"):
        folder.save(0, pieces(NEW, "0123456789abcdef"))
    assert (tmp_path / ".coli_kv-01234567").read_bytes() == b"?"


def test_a_damaged_file_of_this_model_is_written_over(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "a model")
    folder.save(0, pieces(OLD))
    path = tmp_path / ".coli_kv"
    write(path, path.read_bytes()[:-9])
    folder.save(0, pieces(NEW))
    assert held(folder) == NEW
    assert os.listdir(tmp_path) == [".coli_kv"]


def test_a_name_that_another_model_takes_meanwhile(tmp_path: Path) -> None:
    ours, theirs = Folder(tmp_path, "a model"), Folder(tmp_path, "another model")

    def slow() -> Iterator[bytes]:
        theirs.save(0, pieces(OLD, "another model"))
        yield from pieces(NEW)

    with pytest.raises(FileExistsError, match="taken by another model"):
        ours.save(0, slow())
    assert held(theirs, 0, "another model") == OLD
    ours.save(0, pieces(NEW))
    assert held(ours) == NEW
    assert held(theirs, 0, "another model") == OLD


def test_two_processes_do_not_write_one_file(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "a model")
    folder.save(0, pieces(OLD))
    temporary = tmp_path / ".coli_kv-a model.tmp"
    with temporary.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        other.write("half")
        other.flush()
        with pytest.raises(BlockingIOError, match="another process is writing"):
            folder.save(0, pieces(NEW))
        assert temporary.read_text() == "half"
    assert held(folder) == OLD
    folder.save(0, pieces(NEW))
    assert held(folder) == NEW


def test_a_link_in_the_temporary_files_place_is_not_followed(tmp_path: Path) -> None:
    diary = write(tmp_path / "diary", b"dear diary")
    (tmp_path / ".coli_kv-a model.tmp").symlink_to(diary)
    with pytest.raises(OSError, match="symbolic link"):
        Folder(tmp_path, "a model").save(0, pieces(NEW))
    assert diary.read_bytes() == b"dear diary"


# Which folder.


def test_the_models_folder_or_the_one_that_is_named(tmp_path: Path) -> None:
    file = write(tmp_path / "model.gguf", b"")
    assert folder_of(Settings(model=str(tmp_path))) == tmp_path
    assert folder_of(Settings(model=str(file))) == tmp_path
    assert folder_of(Settings(model=str(file), kv_dir="/x")) == Path("/x")


def test_a_folder_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # whoever runs this may write everywhere
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    models = [tmp_path / "one" / "model", tmp_path / "two" / "model"]
    for model in models:
        model.mkdir(parents=True)
    caplog.set_level("INFO")
    found = [folder_of(Settings(model=str(model))) for model in models]
    assert found[0] != found[1]
    for model, path in zip(models, found, strict=True):
        assert path.parent == tmp_path / "state" / "colibri"
        assert path.name.startswith("model-")
        assert f"{model} can't be written: conversations are saved in {path}" in caplog.text
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert folder_of(Settings(model=str(models[0]))).parent == tmp_path / "home" / ".local" / "state" / "colibri"
