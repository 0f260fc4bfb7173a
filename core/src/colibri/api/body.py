"""Request bodies: strict JSON objects."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from ..errors import BadRequest
from .message import Request

#: Deeper bodies are refused: nothing a client means nests like this, and every later stage may recurse.
MAX_DEPTH = 128

#: Longer bodies, in bytes, are decoded in a thread, so that running streams don't stall.
LARGE = 256 << 10

T = TypeVar("T")

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class _Unfit(ValueError):
    """JSON that parses but that we refuse; the text is the reason."""


async def decoded(request: Request, decode: Callable[[dict[str, Any]], T]) -> T:
    """What `decode`, a pure function, makes of the JSON object in the body of `request`. Raises what both raise."""
    if len(request.body) <= LARGE:
        return decode(json_object(request))
    return await asyncio.to_thread(lambda: decode(json_object(request)))


def json_object(request: Request) -> dict[str, Any]:
    """The body of `request` as a JSON object. Raises BadRequest for every other body, whatever it holds."""
    _check_content_type(request)
    value = decode_json(request.body)
    if not isinstance(value, dict):
        raise BadRequest("The request body must be a JSON object.", code="invalid_json")
    return value


def decode_json(body: bytes) -> Any:
    """JSON, read strictly: UTF-8, no duplicate keys, NaN, lone surrogates or numbers that no format can hold.

    Raises BadRequest with code `invalid_json`.
    """
    try:
        value = json.loads(
            body.decode(),
            object_pairs_hook=_object,
            parse_constant=_constant,
            parse_int=_integer,
            parse_float=_float,
        )
        _check_depth(value, body)
        if _SURROGATE.search(body):
            msgspec.json.encode(value)
    except UnicodeDecodeError as error:
        reason = f"invalid UTF-8 at byte {error.start}"
    except UnicodeEncodeError:
        reason = "a string holds half of a surrogate pair"
    except RecursionError:
        reason = f"it nests deeper than {MAX_DEPTH} levels"
    except json.JSONDecodeError as error:
        reason = (
            f"{error.msg[:1].lower()}{error.msg[1:]} at line {error.lineno}, column {error.colno}" if body else "it is empty"
        )
    except _Unfit as error:
        reason = str(error)
    else:
        return value
    raise BadRequest(f"The request body is not valid JSON: {reason}.", code="invalid_json")


def _check_content_type(request: Request) -> None:
    """A page of another site may post text and forms without asking the server first, but not JSON.

    Missing types are fine from programs; a browser always sends Origin along.
    """
    given = request.headers.get("content-type", "")
    kind = given.partition(";")[0].strip().lower()
    if kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json")):
        return
    if not kind and "origin" not in request.headers:
        return
    raise BadRequest(
        f"The request body must be sent with `Content-Type: application/json`, not {kind[:100] or 'without one'!r}.",
        code="unsupported_content_type",
    )


def _check_depth(value: Any, body: bytes) -> None:
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH and nests_too_deep(value):
        raise _Unfit(f"it nests deeper than {MAX_DEPTH} levels")


def nests_too_deep(value: Any) -> bool:
    """Whether decoded JSON nests deeper than MAX_DEPTH levels."""
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(MAX_DEPTH):
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return False
    return True


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _Unfit(f"the key {key[:80]!r} appears twice in one object")
            seen.add(key)
    return value


def _constant(name: str) -> Any:
    raise _Unfit(f"{name} is no JSON number")


def _integer(digits: str) -> int:
    # 20 characters hold every 64-bit integer; the length is checked first because long ones are slow to convert.
    if len(digits) <= 20 and -(1 << 63) <= (value := int(digits)) < 1 << 64:
        return value
    raise _Unfit("an integer does not fit in 64 bits")


def _float(digits: str) -> float:
    if math.isinf(value := float(digits)):
        raise _Unfit("a number is out of range")
    return value
