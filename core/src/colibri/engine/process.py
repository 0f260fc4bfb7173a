"""The worker process as the gateway holds it: a socket and something to reap."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..settings import Settings
from .frames import FromEngine, Shutdown
from .wire import BrokenStream, Malformed, gateway_side, pack
from .worker import GRACE, SETTINGS

log = logging.getLogger(__name__)

#: How long a process may take in all to save conversations when it ends, in seconds.
SAVING = 60.0

Receive = Callable[[FromEngine | Malformed], None]


class Process(asyncio.Protocol):
    """One worker. `lost` is done when its socket has closed, which also happens whenever it dies."""

    def __init__(self, child: subprocess.Popen[bytes], receive: Receive) -> None:
        self._child = child
        self._receive = receive
        self._unpacker = gateway_side()
        self._transport: asyncio.Transport | None = None
        self._heard = 0.0
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @classmethod
    async def start(cls, settings: Settings, load: str | None, receive: Receive) -> Process:
        """Start a worker for `settings`. It inherits one end of a socket pair, and stderr."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                child = _spawn(settings, load, theirs.fileno())
        except BaseException:
            ours.close()
            raise
        process = cls(child, receive)
        try:
            await asyncio.get_running_loop().create_unix_connection(lambda: process, sock=ours)
        except BaseException:
            ours.close()
            child.kill()
            child.wait()
            raise
        return process

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._child.pid

    def send(self, frame: Struct) -> None:
        """Send a frame; nothing happens once the process is gone. Raises ValueError if the frame is too long."""
        data = pack(frame)
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    async def reap(self) -> int:
        """Wait for the exit status after `lost`, by force if the process outlives its socket; below 0 is a signal."""
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + GRACE + 1, 0.001
        while (status := self._child.poll()) is None:
            if loop.time() > deadline:
                self._child.kill()
            await asyncio.sleep(pause)  # there is no portable event to wait for, and it takes a moment at most
            pause = min(2 * pause, 0.05)
        return status

    async def end(self) -> None:
        """End the process: politely, then by force, but not while it tells how far it is with saving. Leaves no zombie, even
        if cancelled."""
        try:
            self.send(Shutdown())
            loop = asyncio.get_running_loop()
            latest, self._heard = loop.time() + SAVING, loop.time()
            while not self.lost.done() and (left := min(self._heard + GRACE, latest) - loop.time()) > 0:
                await asyncio.wait({self.lost}, timeout=left)
        finally:
            if self._transport is not None:
                self._transport.abort()
            if not self.lost.done():
                self._child.kill()
            try:
                await self.reap()
            finally:
                if self._child.poll() is None:
                    self._child.kill()
                    self._child.wait()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        try:
            frames = self._unpacker.feed(data)
        except BrokenStream as error:
            log.warning("the engine's answers can't be followed any more: %s", error)
            self._child.kill()
            return
        self._heard = asyncio.get_running_loop().time()
        for frame in frames:
            self._receive(frame)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(None)


def _spawn(settings: Settings, load: str | None, fd: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "colibri.engine.worker", "--fd", str(fd)]
    if load is not None:
        command += ["--load", load]
    environment = {
        **os.environ,
        SETTINGS: msgspec.json.encode(replace(settings, api_key=None)).decode(),
        # The same modules as here, and none that happen to lie in the working directory.
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PYTHONSAFEPATH": "1",
    }
    with _ctrl_c_held_back():
        return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, pass_fds=(fd,))


@contextlib.contextmanager
def _ctrl_c_held_back() -> Iterator[None]:
    """A child started in here does not hear SIGINT before it can ignore it: a terminal sends it to both of us."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
