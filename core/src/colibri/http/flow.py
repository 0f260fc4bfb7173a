"""Flow control: never hold more for a slow reader, or take more from a fast writer, than the transport says."""

from __future__ import annotations

import asyncio


class Flow:
    """Both directions of one transport. `drain` waits until the client has taken what was written."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._writable = asyncio.Event()
        self._writable.set()
        self._reading = True

    @property
    def writable(self) -> bool:
        """Whether a write would be sent soon."""
        return self._writable.is_set()

    def pause_writing(self) -> None:
        """The transport's buffer is full."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """The transport's buffer has room again, or the connection is gone and nobody should wait."""
        self._writable.set()

    async def drain(self) -> None:
        """Wait until the transport takes more."""
        await self._writable.wait()

    def pause_reading(self) -> None:
        """Take no more bytes from the client."""
        if self._reading:
            self._reading = False
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Take bytes from the client again."""
        if not self._reading:
            self._reading = True
            self._transport.resume_reading()
