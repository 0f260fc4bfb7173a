"""From the parsed parts of a request's head to a Request, refusing what HTTP leaves ambiguous."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..api.message import Request
from ..errors import BadRequest

#: Headers that mean one thing only: two of them are a way to tell two servers two things.
_ONCE = frozenset(
    ("host", "content-length", "transfer-encoding", "content-type", "content-encoding", "authorization", "x-api-key")
)

_DIGITS = re.compile(r"[0-9]{1,18}")
_ABSOLUTE = re.compile(r"https?://([^/?#]*)(/[^?#]*)?(\?[^#]*)?", re.IGNORECASE)


def read_head(method: str, target: bytes, headers: Iterable[tuple[bytes, bytes]], version: str) -> Request:
    """The request without its body. Raises BadRequest.

    Always 400: HTTP has 501 and 505 for some of it, but clients take those for a server that may recover, and try again.
    """
    if version not in ("1.0", "1.1"):
        raise _bad(f"HTTP/{version} is not spoken here, only HTTP/1.1 and HTTP/1.0.")
    fields = _fields(headers)
    if version == "1.1" and "host" not in fields:
        raise _bad("The Host header is missing.")
    coding = fields.get("transfer-encoding")
    if coding is not None and (coding.lower() != "chunked" or version == "1.0"):
        raise _bad(f"Transfer-Encoding {coding[:60]!r} is not spoken here, only chunked in HTTP/1.1.")
    if "content-length" in fields and not _DIGITS.fullmatch(fields["content-length"]):
        raise _bad("Content-Length must be a number of bytes.")
    path, query, authority = _split(method, target)
    if authority is not None:
        fields["host"] = authority
    return Request(method, path, query, fields)


def _fields(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    fields: dict[str, str] = {}
    for raw, value in headers:
        name, text = raw.decode("latin-1").lower(), value.decode("latin-1").strip()
        if name not in fields:
            fields[name] = text
        elif name in _ONCE:
            raise _bad(f"The header {name} was sent twice.")
        else:
            fields[name] += ", " + text
    return fields


def _split(method: str, target: bytes) -> tuple[str, str, str | None]:
    try:
        text = target.decode("ascii")
    except UnicodeDecodeError:
        raise _bad("The request target holds bytes that must be percent-encoded.") from None
    if text.startswith("/"):
        path, _, query = text.partition("#")[0].partition("?")
        return path, query, None
    if text == "*" and method == "OPTIONS":
        return "*", "", None
    # The form proxies are asked with; its authority outranks the Host header.
    if (absolute := _ABSOLUTE.fullmatch(text)) is not None:
        authority, path, query = absolute.groups()
        return path or "/", (query or "")[1:], authority.rpartition("@")[2]
    raise _bad("The request target must be a path, such as /v1/models.")


def _bad(message: str) -> BadRequest:
    return BadRequest(message, code="bad_request")
