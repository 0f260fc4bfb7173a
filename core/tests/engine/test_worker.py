"""The worker's loop on a socket, without a process around it."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from colibri.compute.plan import Codes
from colibri.engine import worker
from colibri.engine.frames import Accept, Done, Error, Progress, Ready, Shutdown, Submit, Tokens, mark_of
from colibri.engine.wire import gateway_side, pack
from colibri.errors import CheckpointError
from colibri.family import Sampling
from colibri.settings import Settings
from colibri.testing.runtime import ScriptedRuntime, alone


class Gateway:
    """The other end of the worker's socket."""

    def __init__(self, load: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
        # At the end of its socket the worker ends the process, which here is the tests'.
        self.exits: list[int] = []
        monkeypatch.setattr(os, "_exit", self.exits.append)
        monkeypatch.setattr(worker, "GRACE", 0.0)
        self.socket, theirs = socket.socketpair()
        self.socket.settimeout(30)
        self.status: list[int] = []
        self._reader = gateway_side()
        self._frames: list[Any] = []
        self._thread = threading.Thread(
            target=lambda: self.status.append(worker.serve(theirs, Settings(prefill_chunk=4), load)), daemon=True
        )
        self._thread.start()
        self._theirs = theirs

    def send(self, *frames: Any) -> None:
        self.socket.sendall(b"".join(map(pack, frames)))

    def next(self) -> Any:
        while not self._frames:
            data = self.socket.recv(1 << 16)
            assert data, "the worker closed the connection"
            self._frames += self._reader.feed(data)
        return self._frames.pop(0)

    def end(self) -> int:
        self._thread.join(30)
        self.socket.close()
        # Its reader sees the end of the stream now; it must do so before `os._exit` is the real one again.
        for thread in threading.enumerate():
            if thread.name == "inbox":
                thread.join(30)
                assert not thread.is_alive()
        self._theirs.close()
        [status] = self.status
        return status


def scripted(settings: Settings, progress: Callable[[str, float], None]) -> ScriptedRuntime:
    for fraction in (0.0, 0.001, 0.002, 0.5, 0.501, 1.0):
        progress("reading", fraction)
    return ScriptedRuntime()


def test_load_answer_shut_down(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = Gateway(scripted, monkeypatch)
    assert [gateway.next() for _ in range(3)] == [Progress("reading", fraction) for fraction in (0.0, 0.5, 1.0)]
    assert gateway.next() == Ready(64, 2, 32, "scripted runtime, no weights")
    gateway.send(Submit(1, [1, 2], 3, Sampling()))
    assert gateway.next() == Accept(1, 0, 2, 0, 3)
    tokens: list[int] = []
    while isinstance(frame := gateway.next(), Tokens):
        tokens += frame.ids
    assert tokens == alone([1, 2], 3)
    assert isinstance(frame, Done)
    gateway.send(Shutdown())
    assert gateway.end() == 0


def test_a_model_that_reads_codes_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = Gateway(lambda settings, progress: ScriptedRuntime(codes=Codes(2, 3)), monkeypatch)
    assert gateway.next() == Ready(64, 2, 32, "scripted runtime, no weights", Codes(2, 3))
    sound = b"\2\0\1\0"
    gateway.send(Submit(1, [1, mark_of(sound)], 3, Sampling(), media=[sound]))
    assert gateway.next() == Accept(1, 0, 2, 0, 3)
    tokens: list[int] = []
    while isinstance(frame := gateway.next(), Tokens):
        tokens += frame.ids
    assert tokens == alone([1, mark_of(sound)], 3)
    gateway.send(Shutdown())
    assert gateway.end() == 0


def test_frames_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = Gateway(scripted, monkeypatch)
    while not isinstance(gateway.next(), Ready):
        pass
    for value in ({"t": "submit", "id": 5, "ids": "?"}, {"t": "poem", "id": 6}, ["?"]):
        body = msgspec.msgpack.encode(value)
        gateway.socket.sendall(struct.pack("<I", len(body)) + body)
    gateway.send(Submit(7, [1], 1, Sampling()))
    error = gateway.next()
    assert isinstance(error, Error)
    assert (error.id, error.code) == (5, "bad_frame")
    assert gateway.next() == Accept(7, 0, 1, 0, 1)
    gateway.send(Shutdown())
    assert gateway.end() == 0


@pytest.mark.parametrize(
    ("raised", "code", "message"),
    [
        (CheckpointError("is cut short", file="m.gguf", tensor="x"), "bad_checkpoint", "m.gguf: tensor 'x': is cut short"),
        (
            MemoryError(),
            "out_of_memory",
            "there is not enough memory for the model and its slots; lower --ctx or --kv-slots",
        ),
        (ZeroDivisionError("by\nzero"), "engine_error", "the engine failed: ZeroDivisionError: by zero"),
    ],
)
def test_a_failed_load_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], raised: Exception, code: str, message: str
) -> None:
    def load(settings: Settings, progress: Any) -> Any:
        raise raised

    gateway = Gateway(load, monkeypatch)
    assert gateway.next() == Error(None, code, message)
    assert gateway.end() == 1
    assert capfd.readouterr().err == ""


def test_the_gateway_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = Gateway(scripted, monkeypatch)
    while not isinstance(gateway.next(), Ready):
        pass
    gateway.send(Submit(1, [1], 60, Sampling()))
    gateway.socket.shutdown(socket.SHUT_WR)
    assert gateway.end() == 0


def test_not_to_be_started_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        worker.main(["--fd", "0"])
    assert "not by hand" in capsys.readouterr().err
