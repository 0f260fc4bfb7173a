"""The frames between gateway and engine: length-prefixed MessagePack, token ids only, never text.

A frame is a 4-byte little-endian length and one MessagePack map tagged by `t`. A reader ignores frames of kinds it does
not know, so either side may learn new ones first.
"""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec
from msgspec import Struct

from ..compute.plan import Codes
from ..compute.runtime import Phases
from ..family import Sampling

#: Longest frame either side accepts, in bytes.
MAX_FRAME = 64 << 20


class Submit(Struct, frozen=True, tag_field="t", tag="submit"):
    """Generate after `ids`. `max_tokens` is a ceiling; the engine clamps it to the room the context leaves.

    Generation ends at a token of `stop_ids` (the token itself is not sent). `slot` None lets the engine choose. `ways_back`
    are lengths of the prompt that later prompts may share: an engine that can't cut its state anywhere remembers it there.

    `media` holds the codes of what is no token, sound for instance, position by position (see compute.runtime.Row). Where
    they stand, `ids` has the `mark_of` them.
    """

    id: int
    ids: list[int]
    max_tokens: int
    sampling: Sampling
    stop_ids: list[int] = []
    slot: int | None = None
    ways_back: list[int] = []
    media: list[bytes] = []


def mark_of(codes: bytes) -> int:
    """What stands in a prompt's ids for a position with these codes: a number below 0 that is the same for the same codes,
    so that prompts are compared, and their beginnings shared, by their ids alone."""
    return -1 - (int.from_bytes(hashlib.blake2b(codes, digest_size=8).digest(), "little") >> 1)


class Stop(Struct, frozen=True, tag_field="t", tag="stop"):
    """End request `id` now as finished: the gateway has seen a stop text."""

    id: int


class Cancel(Struct, frozen=True, tag_field="t", tag="cancel"):
    """Nobody reads request `id` any more."""

    id: int


class Shutdown(Struct, frozen=True, tag_field="t", tag="shutdown"):
    """End the worker."""


class Progress(Struct, frozen=True, tag_field="t", tag="progress"):
    """Loading: `stage` in words, `fraction` from 0 to 1."""

    stage: str
    fraction: float


class Resumed(Struct, frozen=True, tag_field="t", tag="resumed"):
    """A slot goes on with a conversation from before the engine was started. Comes before Ready."""

    slot: int
    ids: list[int]


class Ready(Struct, frozen=True, tag_field="t", tag="ready"):
    """The model can answer: context length in tokens, slots, vocabulary size, and a one-line description of the runtime;
    `codes` if it reads them, and whether its slots can only be taken back to where they were remembered."""

    context: int
    slots: int
    vocab: int
    runtime: str
    codes: Codes | None = None
    sequential: bool = False


class Accept(Struct, frozen=True, tag_field="t", tag="accept"):
    """Request `id` has a slot and fits; `cached` of its prompt tokens need no computation."""

    id: int
    slot: int
    prompt: int
    cached: int
    max_tokens: int


class Tokens(Struct, frozen=True, tag_field="t", tag="tokens"):
    """New tokens of request `id`, in order."""

    id: int
    ids: list[int]


class Done(Struct, frozen=True, tag_field="t", tag="done"):
    """Request `id` ended: at a stop (id or Stop frame), at its length, or cancelled. Times are in seconds. `drafts`: by
    source, how many tokens were drafted, and how many of these were right."""

    id: int
    finish: Literal["stop", "length", "cancelled"]
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    drafts: dict[str, tuple[int, int]] = {}


class Error(Struct, frozen=True, tag_field="t", tag="error"):
    """Request `id` failed, or, with id None, the engine did (loading included)."""

    id: int | None
    code: str
    message: str
    status: int = 500
    param: str | None = None


class Tiers(Struct, frozen=True, tag_field="t", tag="tiers"):
    """Where experts are: how many of them in memory and on disk only, and their bytes."""

    ram: int
    disk: int
    ram_bytes: int
    disk_bytes: int


class ExpertMap(Struct, frozen=True, tag_field="t", tag="experts"):
    """All layers with experts, that of the draft head last, a byte for each expert (see compute.runtime.Runtime.expert_map,
    whose layers may be narrower); bit 7 is what changed since the last such frame."""

    rows: int
    cols: int
    map: bytes


class Profile(Struct, frozen=True, tag_field="t", tag="profile"):
    """Where the time of a request that ended went, from its acceptance on, in seconds. What ran beside it is in it."""

    wall: float
    prompt: int
    completion: int
    phases: Phases


ToEngine = Submit | Stop | Cancel | Shutdown
FromEngine = Progress | Resumed | Ready | Accept | Tokens | Done | Error | Tiers | ExpertMap | Profile

encoder = msgspec.msgpack.Encoder()
