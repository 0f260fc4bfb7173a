"""What slots hold outlives the process: when it is saved, what is told, and what a new process goes on with."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from colibri.compute.native import NativeRuntime
from colibri.compute.plan import Codes
from colibri.compute.runtime import Runtime
from colibri.engine import kv_files
from colibri.engine.conversations import Conversations, kept_conversations
from colibri.engine.frames import Accept, Submit, Tokens, mark_of
from colibri.engine.kv_files import load
from colibri.engine.kv_folder import Folder
from colibri.engine.planner import Planner
from colibri.family import Sampling
from colibri.settings import Settings
from colibri.testing.drive import greedy
from colibri.testing.runtime import ScriptedRuntime, alone

from ..native.test_rewind import PLANS, TOKENS, Model, advance, models
from ..native.test_rewind import load as new_native
from .saving import filled, saved, write

__all__ = ["models"]


def silent(stage: str, fraction: float) -> None:
    pass


class Server:
    """A planner on slots that are kept in a folder."""

    def __init__(self, path: Path, runtime: Runtime | None = None, *, rate: float = 1e12, **options: Any) -> None:
        self.runtime = runtime or ScriptedRuntime(identity="a model", **options)
        self.folder = Folder(path, self.runtime.identity)
        self.kept = Conversations(self.runtime, self.folder, rate=rate)
        self.resumed = dict(self.kept.start(silent))
        self.frames: list[Any] = []
        self.planner = Planner(self.runtime, self.frames.append, chunk=4, slots=self.kept)

    def ask(self, id: int, ids: list[int], count: int, **fields: Any) -> tuple[list[int], int]:
        """The answer, and how much of the prompt was cached."""
        self.planner.submit(Submit(id, ids, count, Sampling(), **fields))
        while self.planner.busy:
            self.planner.step()
        [cached] = [frame.cached for frame in self.frames if isinstance(frame, Accept) and frame.id == id]
        return [
            token for frame in self.frames if isinstance(frame, Tokens) and frame.id == id for token in frame.ids
        ], cached

    def on_disk(self, slot: int) -> list[int]:
        """The tokens that a new process would go on with."""
        found = [path for path, reason in self.folder.look(slot) if not reason]
        return load(found[0], [ScriptedRuntime(identity=self.runtime.identity)], 0) if found else []

    def close(self) -> None:
        self.kept.close(silent)


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.mark.parametrize("name", PLANS)
def test_a_conversation_goes_on_as_if_nothing_had_happened(models: dict[str, Model], name: str, tmp_path: Path) -> None:
    """Whatever the slots hold: two turns with a restart between them give the tokens, and the cache, of a server that went
    on; so does a turn that parts from what was said before."""
    prompt, other = [1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4, 5, 9]
    unbroken = Server(tmp_path / "unbroken", new_native(models[name]))
    first = Server(tmp_path / "kept", new_native(models[name]))
    answers = [server.ask(1, prompt, 6, ways_back=[5], slot=1) for server in (unbroken, first)]
    assert answers[0] == answers[1]
    first.close()
    second = Server(tmp_path / "kept", new_native(models[name]))
    said = [*prompt, *answers[0][0]]
    assert second.resumed == {1: said[:-1]}
    for id, ids in ((2, [*said, 3]), (3, other), (4, [*other, 1, 1])):
        expected = unbroken.ask(id, ids, 5, slot=1)
        assert second.ask(id, ids, 5, slot=1) == expected
        assert expected[1] > 0
    for server in (unbroken, second):
        server.close()


ASKED = st.tuples(
    st.lists(st.integers(0, 2), min_size=1, max_size=20),  # few tokens: prompts share their beginnings
    st.integers(1, 9),
    st.integers(0, 5),
    st.sampled_from([None, 0, 1, 2]),
    st.sampled_from([False, False, True]),
)


@pytest.mark.parametrize("name", ["rows", "windows", "all"])
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asked=st.lists(ASKED, min_size=2, max_size=8))
def test_a_request_gets_the_same_tokens_before_and_after_any_restart(
    models: dict[str, Model], name: str, asked: list[tuple[list[int], int, int, int | None, bool]], tmp_path: Path
) -> None:
    """In any slot, beside others or alone, in conversations that go on or part, with restarts in between."""
    for path in tmp_path.iterdir():
        path.unlink()
    server, said = Server(tmp_path, new_native(models[name])), list[int]()
    for id, (ids, count, gap, slot, restart) in enumerate(asked):
        while server.planner.busy and (slot is None or slot not in server.kept.free()):
            server.planner.step()
        if slot is not None and said and gap % 2:
            ids = [*said, *ids][:100]
        server.planner.submit(Submit(id, ids, count, Sampling(), slot=slot, ways_back=[len(ids) // 2, len(ids) - 1]))
        for _ in range(gap):
            server.planner.step()
        if restart:
            server.close()
            server = Server(tmp_path, new_native(models[name]))
            continue
        while server.planner.busy and gap < 3:
            server.planner.step()
        if gap < 3:
            answer = [
                token for frame in server.frames if isinstance(frame, Tokens) and frame.id == id for token in frame.ids
            ]
            assert answer == greedy(new_native(models[name]), ids, count)
            said = [*ids, *answer]
    server.close()


def test_a_turn_is_saved_when_it_has_ended(tmp_path: Path) -> None:
    server = Server(tmp_path)
    tokens, _ = server.ask(1, [1, 2, 3], 4)
    until(lambda: server.on_disk(0) == [1, 2, 3, *tokens[:-1]])
    server.close()
    assert os.listdir(tmp_path) == [".coli_kv"]


def test_a_cancelled_turn_is_saved_too(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.planner.submit(Submit(1, [1, 2, 3], 40, Sampling()))
    for _ in range(4):
        server.planner.step()
    server.planner.cancel(1)
    until(lambda: server.on_disk(0)[:4] == [1, 2, 3, *alone([1, 2, 3], 1)])
    server.close()


def test_at_the_end_even_what_is_unfinished_is_saved(tmp_path: Path) -> None:
    server = Server(tmp_path, slots=3)
    server.ask(1, [5, 6], 2, slot=2)
    server.planner.submit(Submit(2, [1, 2, 3], 40, Sampling(), slot=0))
    for _ in range(3):
        server.planner.step()
    told: list[tuple[str, float]] = []
    server.kept.close(lambda stage, fraction: told.append((stage, fraction)))
    again = Server(tmp_path, slots=3)
    assert again.resumed == {2: [5, 6, *alone([5, 6], 1)], 0: [1, 2, 3, *alone([1, 2, 3], 2)]}
    assert {stage for stage, _ in told} == {"saving conversations"}
    assert [fraction for _, fraction in told][-1] == 1
    again.close()


def test_only_what_changed_is_written(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.ask(1, [1, 2, 3], 4, slot=0)
    server.ask(2, [4, 5, 6], 4, slot=1)
    server.close()
    before = {path.name: path.stat().st_ino for path in tmp_path.iterdir()}
    again = Server(tmp_path)
    again.ask(1, [4, 5, 6], 3, slot=1)
    again.close()
    after = {path.name: path.stat().st_ino for path in tmp_path.iterdir()}
    assert before[".coli_kv"] == after[".coli_kv"]
    assert before[".coli_kv.1"] != after[".coli_kv.1"]


def test_a_long_conversation_is_saved_less_often(tmp_path: Path) -> None:
    server = Server(tmp_path, rate=1e-3)
    tokens, _ = server.ask(1, [1, 2, 3], 4, slot=0)
    until(lambda: server.on_disk(0) == [1, 2, 3, *tokens[:-1]])
    more, _ = server.ask(2, [1, 2, 3, *tokens, 4], 4, slot=0)
    server.ask(3, [7, 7], 2, slot=1)  # another one does not wait for it
    until(lambda: server.on_disk(1) != [])
    assert server.on_disk(0) == [1, 2, 3, *tokens[:-1]]
    server.close()
    assert server.on_disk(0) == [1, 2, 3, *tokens, 4, *more[:-1]]


@pytest.fixture
def slowly(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Semaphore, threading.Semaphore]]:
    """Files are written in pieces of four numbers; `reached` counts pieces, and each waits for `go`."""
    reached, go = threading.Semaphore(0), threading.Semaphore(0)
    real = Folder.save

    def save(self: Folder, slot: int, pieces: Iterator[bytes]) -> int:
        def waiting() -> Iterator[bytes]:
            for piece in pieces:
                reached.release()
                assert go.acquire(timeout=30)
                yield piece

        return real(self, slot, waiting())

    monkeypatch.setattr(kv_files, "PIECE", 4)
    monkeypatch.setattr(Folder, "save", save)
    yield reached, go
    go.release(10_000)


def test_steps_do_not_wait_for_the_disk(tmp_path: Path, slowly: tuple[threading.Semaphore, threading.Semaphore]) -> None:
    """While the disk hangs, the slot that is being saved goes on, and what is written is what it was."""
    reached, go = slowly
    server = Server(tmp_path)
    tokens, _ = server.ask(1, [1, 2, 3], 4, slot=0)
    said = [1, 2, 3, *tokens]
    assert reached.acquire(timeout=30)
    more, cached = server.ask(2, [*said, 4], 9, slot=0)
    assert (more, cached) == (alone([*said, 4], 9), 6)
    assert server.on_disk(0) == []
    go.release(5)  # begin, header, tokens, 6 digests in pieces of 2
    for _ in range(5):
        assert reached.acquire(timeout=30)
    go.release(2)
    until(lambda: server.on_disk(0) == said[:-1])
    go.release(10_000)
    server.close()
    assert server.on_disk(0) == [*said, 4, *more[:-1]]


@pytest.mark.parametrize("pieces", range(1, 6))
def test_a_slot_that_is_taken_back_while_it_is_saved(
    pieces: int, tmp_path: Path, slowly: tuple[threading.Semaphore, threading.Semaphore]
) -> None:
    """What is being written then is never a file: its rows are being written over."""
    reached, go = slowly
    server = Server(tmp_path)
    tokens, _ = server.ask(1, [1, 2, 3], 4, slot=0)
    go.release(pieces)
    for _ in range(pieces + 1):
        assert reached.acquire(timeout=30)
    server.planner.submit(Submit(2, [1, 9, 9], 5, Sampling(), slot=0))
    go.release(10_000)
    until(lambda: server.kept._job is None or pieces == 5)
    assert server.on_disk(0) in ([], [1, 2, 3, *tokens[:-1]])
    while server.planner.busy:
        server.planner.step()
    until(lambda: server.on_disk(0)[:3] == [1, 9, 9])
    server.close()
    again = Server(tmp_path)
    assert again.resumed == {0: [1, 9, 9, *alone([1, 9, 9], 4)]}
    assert again.ask(1, [*again.resumed[0], 3], 5, slot=0) == (alone([*again.resumed[0], 3], 5), 7)
    again.close()


def test_prompts_with_sounds_are_kept_as_well(tmp_path: Path) -> None:
    codes, sound, silence = Codes(2, 3), b"\2\0\1\0", b"\0\0\0\0"
    server = Server(tmp_path, codes=codes)
    ids = [1, mark_of(sound), 2]
    tokens, _ = server.ask(1, ids, 3, media=[sound])
    server.close()
    again = Server(tmp_path, codes=codes)
    assert again.ask(1, [*ids, *tokens, 5], 4, media=[sound]) == (alone([*ids, *tokens, 5], 4), 5)
    other = [1, mark_of(silence), 2]
    assert again.ask(2, other, 4, media=[silence], slot=0) == (alone(other, 4), 1)
    again.close()


# What goes wrong.


def test_a_full_disk_is_told_once_and_serving_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server(tmp_path)

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        for id in range(3):
            assert server.ask(id, [id, 2, 3], 4, slot=0)[0] == alone([id, 2, 3], 4)
            until(lambda: not server.kept._changed and server.kept._job is None)
        assert os.listdir(tmp_path) == []
    assert caplog.messages == [f"conversations can't be saved in {tmp_path}: No space left on device"]
    server.ask(5, [5, 2, 3], 4, slot=0)
    server.close()
    assert server.on_disk(0)[:3] == [5, 2, 3]


def test_a_folder_that_can_never_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = write(tmp_path / "file", b"")
    server = Server(file)
    assert server.ask(1, [1, 2, 3], 4)[0] == alone([1, 2, 3], 4)
    server.close()
    assert any("conversations can't be saved in" in message for message in caplog.messages)
    assert file.read_bytes() == b""


def test_a_fault_of_ours_does_not_end_the_saving(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Faulty(ScriptedRuntime):
        def image(self, slot: int, length: int) -> Any:
            if slot == 0:
                raise ZeroDivisionError("oh")
            return super().image(slot, length)

    server = Server(tmp_path, Faulty(identity="a model"))
    server.ask(1, [1, 2, 3], 4, slot=0)
    server.ask(2, [1, 2, 4], 4, slot=1)
    until(lambda: server.on_disk(1) != [])
    server.close()
    assert caplog.messages == [f"conversations can't be saved in {tmp_path}: ZeroDivisionError: oh"]


# What is there at the start.


def test_who_goes_on_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    first = Server(tmp_path)
    first.ask(1, [1, 2, 3], 4, slot=1)
    first.close()
    Server(tmp_path).close()
    assert caplog.messages == [f"slot 1 goes on with 6 tokens from {tmp_path / '.coli_kv.1'}"]


def test_files_that_cannot_be_used_are_told_about_and_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    good, ids = saved(filled([1, 2, 3]), [1, 2, 3]), list(range(20))
    other = saved(filled([1, 2, 3], ScriptedRuntime(identity="other")), [1, 2, 3])
    long = saved(filled(ids, ScriptedRuntime(identity="a model", sequential=True)), ids)
    files = {"": good[:-1], ".1": other, ".2": b"?", ".3": long, ".4": good, ".5": good, ".5-a model": b"?", ".15": good}
    for name, data in files.items():
        write(tmp_path / f".coli_kv{name}", data)
    server = Server(tmp_path, slots=5, sequential=True, context=16)
    server.close()
    assert server.resumed == {4: [1, 2, 3]}
    size = len(good)
    assert caplog.messages == [
        f"{tmp_path}/.coli_kv.1 is ignored: it belongs to another model, or to this one before its files were changed",
        f"{tmp_path}/.coli_kv.2 is ignored: it is too short for a KV file",
        f"{tmp_path}/.coli_kv.5 is ignored: the server has slots 0 to 4 (see --kv-slots)",
        f"{tmp_path}/.coli_kv.5-a model is ignored: it is too short for a KV file",
        f"{tmp_path}/.coli_kv.15 is ignored: the server has slots 0 to 4 (see --kv-slots)",
        f"{tmp_path}/.coli_kv is ignored: it has {size - 1} bytes instead of {size}",
        f"{tmp_path}/.coli_kv.3 is ignored: it holds 20 tokens, the context has room for 16 (see --ctx)",
    ]
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        f".coli_kv{name}": data for name, data in files.items()
    }


def test_the_oldest_conversation_goes_first_when_a_slot_is_needed(tmp_path: Path) -> None:
    for slot, age in ((0, 10), (1, 30), (2, 20)):
        path = write(tmp_path / Folder(tmp_path, "a model").names(slot)[0], saved(filled([slot, 2, 3]), [slot, 2, 3]))
        os.utime(path, (1e9 - age, 1e9 - age))
    server = Server(tmp_path, slots=3, sequential=True)
    assert list(server.resumed) == [1, 2, 0]
    server.ask(1, [9, 9], 1)
    assert server.kept.all[1].history[:2] == [9, 9]
    server.close()


def test_who_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    named, nameless = ScriptedRuntime(identity="a model"), ScriptedRuntime()
    here = Settings(model=str(tmp_path))
    assert kept_conversations(here, named) is not None
    assert kept_conversations(here, nameless) is None
    assert kept_conversations(Settings(model=str(tmp_path), kv_save=False), named) is None
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", _no_home)
    assert kept_conversations(here, named) is None
    assert caplog.messages == ["conversations are not saved: no folder for them is found: no home"]


def _no_home() -> Path:
    raise RuntimeError("no home")


def test_reading_a_slot_beside_steps_of_another_gives_what_it_holds(models: dict[str, Model]) -> None:
    """Natively, with a thread that reads as fast as it can."""
    runtime: NativeRuntime = new_native(models["all"])
    advance(runtime, 0, TOKENS[:60], 60)
    image = runtime.image(0, 60)
    expected = image.read(0, image.size)
    found: list[bool] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            again = runtime.image(0, 60)
            found.append(again.read(0, again.size) == expected)

    thread = threading.Thread(target=read)
    thread.start()
    for _ in range(20):
        advance(runtime, 1, TOKENS[:100], 100)
    stop.set()
    thread.join()
    assert found
    assert all(found)
