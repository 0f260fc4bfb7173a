"""How much of anything a client may ask the HTTP server to hold or to wait for."""

from __future__ import annotations

from msgspec import Struct


class Limits(Struct, frozen=True):
    """Sizes in bytes, times in seconds.

    A request must arrive within `request_seconds` plus one second for every `slowest_rate` bytes of its body; a
    kept-alive connection may be idle for `idle_seconds`; a client that reads nothing of its answer for `write_seconds`
    is dropped. `backlog_bytes` of pipelined requests are read ahead. `keepalive_seconds` of silence in a stream are
    filled. After an error that closes the connection, what the client still sends is discarded for `linger_seconds`,
    so that it can read the answer before it meets a reset.
    """

    header_count: int = 100
    header_bytes: int = 64 << 10
    body_bytes: int = 32 << 20
    request_seconds: float = 30.0
    slowest_rate: int = 16 << 10
    idle_seconds: float = 75.0
    write_seconds: float = 60.0
    linger_seconds: float = 2.0
    backlog_bytes: int = 64 << 10
    keepalive_seconds: float = 10.0
    connections: int = 1024
