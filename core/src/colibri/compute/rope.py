"""Rotary position embedding: from a configuration's words to rotation frequencies."""

from __future__ import annotations

import math
import struct

from msgspec import Struct

from .config import Config

#: Widest head, in values: every pair of them has a frequency here and in the plan, whatever a file claims.
MAX_HEAD = 1 << 16


class Rope(Struct, frozen=True):
    """How one kind of head is rotated: 2*len(inv_freq) of its `head_dim` values, from `offset` on.

    `inv_freq` is in radians per position; cos and sin are multiplied by `factor`; pairs are (j, j+n), or (2j, 2j+1)
    when `interleaved`.
    """

    head_dim: int
    inv_freq: tuple[float, ...]
    factor: float = 1.0
    offset: int = 0
    interleaved: bool = False


def rope_for(
    config: Config, head_dim: int, context: int, *, partial: float = 1.0, layers: str = "", theta: str = "rope_theta"
) -> Rope:
    """The rotation that a configuration asks for. `context` is the model's own limit in tokens, `partial` the
    part of a head that is rotated where the file does not say. Where kinds of layers differ, `layers` is what
    rope_parameters calls this kind, and `theta` the key that older files have for its base.

    Reads rope_theta, rope_scaling, rope_parameters and rotary_dim; scalings default, linear, llama3 and yarn.
    Raises CheckpointError naming the key.
    """
    rules = config.part("rope_parameters") or config.part("rope_scaling") or Config({}, config.file, "rope_scaling.")
    own = rules.part(layers) if layers else None
    rules = own or rules
    if own is None and config.get(theta) is not None and (theta != "rope_theta" or rules.get("rope_theta") is None):
        base = config.number(theta)
    else:
        base = rules.number("rope_theta", 10000.0)
    if config.get("rotary_dim") is not None:
        dims = _rotated(config, config.size("rotary_dim"), head_dim)
    else:
        part = rules if rules.get("partial_rotary_factor") is not None else config
        dims = _rotated(config, head_dim * part.number("partial_rotary_factor", partial), head_dim)
    kind = rules.word("rope_type", rules.word("type", "default"))
    return _scaled(kind, rules, base, dims, head_dim, context)


def _rotated(config: Config, dims: float, head_dim: int) -> int:
    if head_dim > MAX_HEAD:
        raise config.error("rope", f"is over heads of {head_dim} values, more than {MAX_HEAD}")
    whole = int(dims)
    if whole < 2 or whole % 2 or whole > head_dim:
        raise config.error("rope", f"rotates {whole} of {head_dim} values of a head, it must be an even number of them")
    return whole


def _scaled(kind: str, rules: Config, theta: float, dims: int, head_dim: int, context: int) -> Rope:
    inv_freq = [theta ** (-2 * j / dims) for j in range(dims // 2)]
    factor = 1.0
    if kind == "linear":
        scale = rules.number("factor")
        inv_freq = [f / scale for f in inv_freq]
    elif kind == "llama3":
        inv_freq = _llama3(inv_freq, rules)
    elif kind == "yarn":
        inv_freq, factor = _yarn(inv_freq, rules, theta, dims, context)
    elif kind not in ("default", "none"):
        raise rules.error(
            rules.spelling("rope_type", "type"),
            f"{kind[:32]!r} is unknown; default, linear, llama3 and yarn can be computed",
        )
    # The published models were trained with single-precision frequencies; rounding here gives every platform the same.
    return Rope(head_dim, tuple(struct.unpack("f", struct.pack("f", f))[0] for f in inv_freq), factor)


def _llama3(inv_freq: list[float], rules: Config) -> list[float]:
    scale, low, high = rules.number("factor"), rules.number("low_freq_factor"), rules.number("high_freq_factor")
    original = rules.size("original_max_position_embeddings")
    if low >= high:
        raise rules.error("low_freq_factor", "must be smaller than high_freq_factor")
    scaled = []
    for f in inv_freq:
        turns = original * f / (2 * math.pi)
        keep = min(max((turns - low) / (high - low), 0.0), 1.0)
        scaled.append((1 - keep) * f / scale + keep * f)
    return scaled


def _yarn(inv_freq: list[float], rules: Config, theta: float, dims: int, context: int) -> tuple[list[float], float]:
    if theta <= 1:
        raise rules.error("rope_theta", "must be larger than 1")
    scale = rules.number("factor")
    original = rules.size("original_max_position_embeddings", context)

    def dim(turns: float) -> float:
        return dims * math.log(original / (2 * math.pi * turns)) / (2 * math.log(theta))

    low, high = dim(rules.number("beta_fast", 32.0)), dim(rules.number("beta_slow", 1.0))
    if rules.flag("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dims - 1)
    width = high - low if high != low else 0.001
    ramp = [min(max((j - low) / width, 0.0), 1.0) for j in range(len(inv_freq))]

    def magnitude(weight: float) -> float:
        return 0.1 * weight * math.log(scale) + 1 if scale > 1 else 1.0

    if rules.get("attention_factor") is not None:
        factor = rules.number("attention_factor")
    elif rules.get("mscale") and rules.get("mscale_all_dim"):
        factor = magnitude(rules.number("mscale")) / magnitude(rules.number("mscale_all_dim"))
    else:
        factor = magnitude(1.0)
    return [f * ((1 - r) + r / scale) for f, r in zip(inv_freq, ramp, strict=True)], factor
