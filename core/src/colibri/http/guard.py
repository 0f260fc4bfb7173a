"""Who may talk to the server: Host names, browser origins, API key."""

from __future__ import annotations

import hmac
import ipaddress
import re

from ..api.message import Headers, Request
from ..errors import Forbidden, SettingError, Unauthorized
from ..settings import Settings

#: Browser pages that are our own: the dashboard's development server and the desktop shell.
LOCAL_ORIGINS = (
    "http://127.0.0.1:5173",
    "http://localhost:5173",
    "http://tauri.localhost",
    "https://tauri.localhost",
    "tauri://localhost",
)

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_ANY_ADDRESS = ("", "0.0.0.0", "::", "*")

_PREFLIGHT: Headers = (
    ("access-control-allow-methods", "GET, HEAD, POST, DELETE, OPTIONS"),
    ("access-control-max-age", "600"),
)
#: For a page that does not say what it is going to send.
_USUAL_HEADERS = (
    "Authorization, Content-Type, x-api-key, x-request-id, anthropic-version, anthropic-beta, "
    "X-TypeSafe-SDK, X-TypeSafe-Runtime, X-TypeSafe-Retry-Count"
)
_FIELD_NAMES = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+( *, *[A-Za-z0-9!#$%&'*+.^_`|~-]+)*")
_EXPOSED = (
    "access-control-expose-headers",
    "x-request-id, x-typesafe-request-id, x-colibri-queue-wait-ms, x-colibri-elapsed-ms, x-colibri-engine-ms, Retry-After",
)


class Guard:
    """The rules of one server, compiled from its settings."""

    def __init__(self, settings: Settings) -> None:
        host = settings.host.strip("[]").lower()
        self._any_address = host in _ANY_ADDRESS
        allowed = {name_of_host(name) for name in settings.allowed_hosts}
        if any("*" in name for name in allowed):
            raise SettingError(
                "--allowed-host takes exact names or addresses, no wildcard: anyone can have a name that matches one. "
                "Name each host of yours (or list them in COLI_ALLOWED_HOSTS, separated by commas)."
            )
        self._hosts = {*_LOOPBACK, host, "", *allowed}
        self._any_origin = "*" in settings.cors_origins
        own = (f"http://{name}:{settings.port}" for name in ("127.0.0.1", "localhost", "[::1]"))
        self._origins = {*own, *LOCAL_ORIGINS, *(o.lstrip("+").rstrip("/").lower() for o in settings.cors_origins)}
        self._key = settings.api_key.encode() if settings.api_key else None

    def check_host(self, request: Request) -> None:
        """Refuse a Host that is not ours: a page whose name was rebound to this address sends its own name.

        An IP literal can't be rebound, so a server that listens on every address takes all of them.
        """
        given = request.headers.get("host", "")
        name = name_of_host(given)
        if name in self._hosts or (self._any_address and _is_address(name)):
            return
        raise Forbidden(
            f"Host {name[:200]!r} is not allowed here. If it is yours, start the server with --allowed-host {name[:200]} "
            f"(or COLI_ALLOWED_HOSTS={name[:200]})."
        )

    def authenticated(self, request: Request) -> bool:
        """Whether the request shows the API key, as a Bearer token or in x-api-key. True if the server has none."""
        if self._key is None:
            return True
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        shown = [token.strip()] if scheme.lower() == "bearer" else []
        shown.append(request.headers.get("x-api-key", ""))
        # Every candidate is compared, always in full: the time must tell nothing about the key.
        matches = [hmac.compare_digest(candidate.encode("latin-1", "replace"), self._key) for candidate in shown]
        return any(matches)

    def check_key(self, request: Request) -> None:
        """Refuse a request without the API key."""
        if not request.authenticated:
            raise Unauthorized(
                "The API key is missing or wrong; send it as `Authorization: Bearer KEY` or `x-api-key: KEY`.",
                headers=(("www-authenticate", "Bearer"),),
            )

    def cors_headers(self, request: Request) -> Headers:
        """What lets the page of the request's Origin read the answer; nothing for other origins."""
        origin = request.headers.get("origin")
        if origin is None:
            return ()
        if self._any_origin:
            return ("access-control-allow-origin", "*"), _EXPOSED
        if origin.lower() in self._origins:
            return ("access-control-allow-origin", origin), _EXPOSED, ("vary", "Origin")
        return (("vary", "Origin"),)

    def preflight_headers(self, request: Request) -> Headers:
        """The answer to a browser that asks before it sends.

        What an allowed page asks to send it may send: every client library has header names of its own.
        """
        headers = self.cors_headers(request)
        if len(headers) <= 1:
            return headers
        asked = request.headers.get("access-control-request-headers", "")
        names = asked if _FIELD_NAMES.fullmatch(asked) else _USUAL_HEADERS
        return (*headers, *_PREFLIGHT, ("access-control-allow-headers", names))


def name_of_host(host: str) -> str:
    """The name part of a Host header, lower case: no port, no brackets, no final dot."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name = host.partition(":")[0] if host.count(":") == 1 else host
    return name.rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
