"""Rules of single request fields. Absent and null are the same everywhere, as clients that send whole models expect."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from ...chat.thinking import EFFORTS
from ...errors import BadRequest, NotFound
from ...family import Sampling
from ...serve.request import Service

Body = Mapping[str, Any]


def kind(value: Any) -> str:
    """The JSON name of a value's type."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "an object" if isinstance(value, dict) else "an array"


def wrong(param: str, expected: str, value: Any) -> BadRequest:
    """`param` is not what was `expected`. Numbers are shown; anything else could be long or secret."""
    given = str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else kind(value)
    return BadRequest(f"`{param}` must be {expected}, not {given}.", param=param)


def boolean(body: Body, name: str) -> bool | None:
    """A boolean field."""
    value = body.get(name)
    if value is None or isinstance(value, bool):
        return value
    raise wrong(name, "a boolean", value)


def integer(body: Body, name: str, low: int, high: int | None = None) -> int | None:
    """An integer field from `low` to `high`."""
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < low or (high is not None and value > high):
        bounds = f"of at least {low}" if high is None else f"from {low} to {high}"
        raise wrong(name, f"an integer {bounds}", value)
    return value


def number(body: Body, name: str, low: float, high: float, *, above: bool = False) -> float | None:
    """A number field from `low` (or, with `above`, from just above it) to `high`."""
    value = body.get(name)
    if value is None:
        return None
    fits = (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and math.isfinite(value)
        and low <= value <= high
        and not (above and value == low)
    )
    if not fits:
        bounds = f"above {low:g} and at most {high:g}" if above else f"from {low:g} to {high:g}"
        raise wrong(name, f"a number {bounds}", value)
    return float(value)


def model(body: Body, service: Service) -> None:
    """`model` is the served model. A request without one means it, too."""
    value = body.get("model")
    if value is not None and not isinstance(value, str):
        raise wrong("model", "a string", value)
    if value is not None and value != service.model_id:
        raise unknown_model(value, service)


def unknown_model(name: str, service: Service) -> NotFound:
    """The error for a model that is not served here."""
    return NotFound(
        f"The model `{name[:200]}` is not served here; this server has `{service.model_id}`.",
        code="model_not_found",
        param="model",
    )


def max_tokens(body: Body, service: Service) -> int:
    """The ceiling of the answer in tokens: the newer field outranks the older, the server's limit both."""
    newer = integer(body, "max_completion_tokens", 1)
    older = integer(body, "max_tokens", 1)
    asked = newer if newer is not None else older
    return service.max_tokens if asked is None else min(asked, service.max_tokens)


def sampling(body: Body, defaults: Sampling) -> Sampling:
    """`defaults` with the client's wishes. A seed that is no integer is ignored, as its contract says."""
    wishes: dict[str, float | int | None] = {
        "temperature": number(body, "temperature", 0, 2),
        "top_p": number(body, "top_p", 0, 1, above=True),
        "min_p": number(body, "min_p", 0, 1),
        "top_k": integer(body, "top_k", -1),
    }
    if wishes["top_k"] is not None:
        # Some servers write "off" as -1. No vocabulary has more tokens than 31 bits count.
        wishes["top_k"] = min(max(wishes["top_k"], 0), (1 << 31) - 1)
    seed = body.get("seed")
    if isinstance(seed, int) and not isinstance(seed, bool):
        wishes["seed"] = seed & ((1 << 63) - 1)
    given = {name: value for name, value in wishes.items() if value is not None}
    return msgspec.structs.replace(defaults, **given) if given else defaults


def stop(body: Body) -> tuple[str, ...]:
    """One to four texts that end the answer."""
    value = body.get("stop")
    if value is None:
        return ()
    if isinstance(value, str):
        if not value:
            raise BadRequest("`stop` must not be empty.", param="stop")
        return (value,)
    if not isinstance(value, list):
        raise wrong("stop", "a string or an array of strings", value)
    if not 1 <= len(value) <= 4:
        raise BadRequest(f"`stop` must hold 1 to 4 strings, not {len(value)}.", param="stop")
    for i, text in enumerate(value):
        if not isinstance(text, str) or not text:
            raise BadRequest(f"`stop.{i}` must be a string that is not empty.", param=f"stop.{i}")
    return tuple(value)


def stream(body: Body) -> tuple[bool, bool]:
    """Whether to stream, and whether to end the stream with usage."""
    streaming = boolean(body, "stream") or False
    options = body.get("stream_options")
    if options is None:
        return streaming, False
    if not isinstance(options, dict):
        raise wrong("stream_options", "an object", options)
    usage = options.get("include_usage")
    if usage is not None and not isinstance(usage, bool):
        raise wrong("stream_options.include_usage", "a boolean", usage)
    return streaming, streaming and bool(usage)


def thinking(body: Body) -> tuple[bool | None, str | None]:
    """Whether to think, and how hard; None where the client said nothing. `enable_thinking` outranks the effort."""
    effort = body.get("reasoning_effort")
    if effort is not None and (not isinstance(effort, str) or effort not in EFFORTS):
        raise BadRequest(f"`reasoning_effort` must be one of {', '.join(EFFORTS)}.", param="reasoning_effort")
    enabled = boolean(body, "enable_thinking")
    if enabled is None and effort is not None:
        enabled = effort != "none"
    return enabled, None if effort == "none" else effort


def cache_slot(body: Body, service: Service) -> int | None:
    """The cache slot a request is pinned to."""
    return integer(body, "cache_slot", 0, service.slots - 1)
