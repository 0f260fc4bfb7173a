"""What travels between the HTTP server and a surface: a request in, a reply or a stream out."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from ..errors import ColibriError

Headers = tuple[tuple[str, str], ...]

#: The answer of a stream or request that broke for a reason no user can act on; the log has the rest.
FAILURE = "The engine failed while it worked on this request; the server's log says why."


class Request(Struct, frozen=True):
    """One HTTP request, whole. `path` is still percent-encoded; header names are lower case.

    `authenticated` is true when the client showed the API key, or when the server has none. `params` holds the decoded
    values of the route's `{name}` segments.
    """

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = {}
    body: bytes = b""
    params: Mapping[str, str] = {}
    id: str = ""
    authenticated: bool = True


class Reply(Struct, frozen=True):
    """An answer that is known in full."""

    status: int = 200
    body: bytes = b""
    headers: Headers = ()
    content_type: str = "application/json"


class Stream(Struct, frozen=True):
    """A 200 answer sent as it is made: every item of `chunks` is one or more whole SSE frames.

    Returning a Stream commits the status, so the engine must have accepted before. `keepalive` is the frame that fills
    silence, `failure` writes an error the way the protocol ends a stream. `close` is always called once the stream is
    over, however it ended.
    """

    chunks: AsyncGenerator[bytes, None]
    keepalive: bytes
    failure: Callable[[ColibriError], bytes]
    close: Callable[[], None]
    headers: Headers = ()


def json_reply(value: Any, status: int = 200, headers: Headers = ()) -> Reply:
    """`value` as a compact JSON reply."""
    return Reply(status, msgspec.json.encode(value), headers)
