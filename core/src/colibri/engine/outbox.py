"""Frames on their way to the gateway. The engine never waits for a reader."""

from __future__ import annotations

import threading
from collections.abc import Callable

from .frames import FromEngine, Tokens
from .wire import pack


class Outbox:
    """Hands frames to a writer thread. Tokens of one request that could not be written yet become one frame, so what
    waits for a slow gateway is at most the tokens of the requests in flight."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._frames: list[FromEngine] = []
        self._last: dict[int, int] = {}
        self._changed = threading.Condition()
        self._closed = self._gone = False
        self._thread = threading.Thread(target=self._write, name="outbox", daemon=True)
        self._thread.start()

    def put(self, frame: FromEngine) -> None:
        """Queue a frame; frames of one request keep their order."""
        with self._changed:
            if self._gone:
                return
            if isinstance(frame, Tokens):
                at = self._last.get(frame.id)
                if at is not None:
                    waiting = self._frames[at]
                    assert isinstance(waiting, Tokens)
                    waiting.ids.extend(frame.ids)
                    return
                self._last[frame.id] = len(self._frames)
                frame = Tokens(frame.id, list(frame.ids))
            self._frames.append(frame)
            self._changed.notify()

    def close(self, seconds: float) -> None:
        """Write what waits, for at most `seconds`, and stop."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(seconds)

    def _write(self) -> None:
        while True:
            with self._changed:
                while not self._frames and not self._closed:
                    self._changed.wait()
                frames, self._frames, self._last = self._frames, [], {}
                if not frames:
                    return
            try:
                self._send(b"".join(map(pack, frames)))
            except OSError:  # the gateway is gone: the reader sees it too and ends the process
                with self._changed:
                    self._gone, self._frames, self._last = True, [], {}
                return
