"""The first bytes of a response: status line and headers, from parts made once."""

from __future__ import annotations

import http
import time
from email.utils import formatdate

from ..api.message import Headers

STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in http.HTTPStatus}

_SERVER = b"server: colibri\r\n"
_date: tuple[int, bytes] = (0, b"")


def response_head(status: int, headers: Headers) -> bytes:
    """Status line, `server`, `date` and `headers`, with the blank line that ends them."""
    lines = [STATUS_LINES.get(status) or f"HTTP/1.1 {status} \r\n".encode(), _SERVER, _date_line()]
    lines += [f"{name}: {_one_line(value)}\r\n".encode("latin-1", "replace") for name, value in headers]
    lines.append(b"\r\n")
    return b"".join(lines)


def _one_line(value: str) -> str:
    # A value that came from a client must not start a header of its own.
    return value if value.isprintable() else "".join(c if c.isprintable() else " " for c in value)


def _date_line() -> bytes:
    global _date
    now = int(time.time())
    if _date[0] != now:
        _date = now, f"date: {formatdate(now, usegmt=True)}\r\n".encode()
    return _date[1]
