"""Listening sockets and everything behind them."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import socket
from collections.abc import Awaitable, Callable

import msgspec

from ..api.app import App
from ..errors import SettingError
from .connection import Connection
from .dispatch import Dispatch
from .limits import Limits
from .traffic import Traffic

logger = logging.getLogger("colibri.http")


class Server:
    """A running server; made by `serve`."""

    def __init__(self, listener: asyncio.Server, traffic: Traffic) -> None:
        self._listener = listener
        self.traffic = traffic

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        """The listening sockets; none once closed."""
        return tuple(self._listener.sockets)

    @property
    def port(self) -> int:
        """The port it listens on, also when it was asked for port 0."""
        return int(self.sockets[0].getsockname()[1])

    async def close(self, grace: float = 10.0, overdue: Callable[[], Awaitable[None]] | None = None) -> None:
        """Listen no more, let the answers under way end for up to `grace` seconds, then close what is left.

        `overdue` is called when the time is up, to make the answers fail: their clients are still told so.
        """
        self._listener.close()
        for connection in tuple(self.traffic.connections):
            connection.retire()
        if not await self._quiet(grace):
            logger.warning("answers cut short: %d", len(self.traffic.answers))
            if overdue is not None:
                await overdue()
                if await self._quiet(1.0):
                    return
            for connection in tuple(self.traffic.connections):
                connection.abort()
            await self._quiet(grace)

    async def _quiet(self, seconds: float) -> bool:
        """Wait until no connection and no answer is left, at most `seconds`."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while self.traffic.connections or self.traffic.answers:
            if (left := end - loop.time()) <= 0:
                return False
            if self.traffic.answers:
                await asyncio.wait(self.traffic.answers, timeout=left)
            # What is written may still be on its way out after the last answer has ended.
            await asyncio.sleep(min(0.01, left))
        return True


async def serve(app: App, host: str | None = None, port: int | None = None, limits: Limits | None = None) -> Server:
    """Serve `app` on `host` and `port`, by default those of its settings. Raises SettingError if it can't listen there."""
    settings = app.settings
    host = settings.host if host is None else host
    port = settings.port if port is None else port
    limits = limits or msgspec.structs.replace(Limits(), body_bytes=settings.max_body)
    dispatch, traffic = Dispatch(app), Traffic()
    loop = asyncio.get_running_loop()
    try:
        listener = await loop.create_server(
            lambda: Connection(dispatch, limits, traffic), host.strip("[]") or None, port, backlog=512
        )
    except (OSError, OverflowError) as error:
        raise SettingError(_reason(error, host, port)) from None
    if settings.api_key is None and not _is_local(host):
        logger.warning("anyone who reaches %s:%d may use this server: --api-key asks them for a key", host, port)
    return Server(listener, traffic)


def _reason(error: Exception, host: str, port: int) -> str:
    code = error.errno if isinstance(error, OSError) else None
    if code == errno.EADDRINUSE:
        return f"port {port} on {host} is in use already; stop the program that has it, or choose another with --port"
    if code == errno.EACCES:
        return f"port {port} needs more rights than this program has; choose one above 1023 with --port"
    if isinstance(error, OverflowError):
        return f"{port} is no port; choose one from 0 to 65535 with --port"
    return f"can't listen on {host}: it is no address of this machine; choose another with --host ({error})"


def _is_local(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
