"""One method of one path: who answers, and how it tells an error."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from ..errors import ColibriError
from .message import Reply, Request, Stream

Handler = Callable[[Request], Awaitable[Reply | Stream]]

#: Makes the JSON body of an error answer.
Envelope = Callable[[ColibriError, Request], Any]


def openai_envelope(error: ColibriError, request: Request) -> Any:
    """The error shape of every path that does not choose another."""
    return error.openai()


class Route(Struct, frozen=True):
    """A `{name}` segment of `path` matches one segment, a last `{name*}` one or more.

    A `public` route needs no API key and sees `request.authenticated` instead.
    """

    method: str
    path: str
    handler: Handler
    public: bool = False
    envelope: Envelope = openai_envelope
