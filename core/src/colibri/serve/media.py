"""Sounds and images of a request as the model reads them: a run of codes for each, which stand in the prompt like tokens."""

from __future__ import annotations

import asyncio
import hashlib
import struct
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import cast

from msgspec import Struct

from ..chat.asking import ask
from ..chat.conversation import Conversation, MediaPart
from ..chat.prompt import Media, Prompt
from ..engine.frames import mark_of
from ..family import Family, MediaFamily, Variant

#: How many positions of encoded media are remembered; what was not asked for for longest goes first.
LIMIT = 100_000

#: The field of a content part in which each kind of media comes.
_FIELDS = {"audio": "input_audio", "image": "image_url"}


class Placed(Struct, frozen=True):
    """A sound or an image, and the field of the request it came in."""

    part: MediaPart
    param: str


class Encoded(Struct, frozen=True):
    """What stands for a sound or an image: `codes` position by position, and the `ids` that mark them in a prompt."""

    ids: tuple[int, ...]
    codes: tuple[bytes, ...]


Encode = Callable[[Placed, int], Encoded]


def media_of(conversation: Conversation) -> tuple[Placed, ...]:
    """All media of a conversation, in order of appearance: a prompt's `Media` refers to them by their index."""
    return tuple(
        Placed(part, f"messages.{number}.content.{place}.{_FIELDS[part.kind]}")
        for number, turn in enumerate(conversation.turns)
        for place, part in enumerate(turn.content or ())
        if isinstance(part, MediaPart)
    )


class Encoder:
    """Encodes the media of a server. A conversation brings what it began with in every turn, so the last ones are kept.

    It has one thread: the work is Python's, and more of it at a time would only slow down what streams beside it.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._known: OrderedDict[bytes, Encoded] = OrderedDict()
        self._positions = 0
        self._thread = ThreadPoolExecutor(1, "media")

    async def encode(
        self, family: Family, variant: Variant, prompt: Prompt, media: Sequence[Placed], room: int
    ) -> Mapping[int, Encoded]:
        """The media that the prompt shows, by their `ref`. All of them take at most `room` positions; raises BadRequest for
        what can't be read or does not fit."""
        refs = sorted({piece.ref for piece in prompt.pieces if isinstance(piece, Media)})
        if not refs:
            return {}

        def run() -> Mapping[int, Encoded]:
            found: dict[int, Encoded] = {}
            for ref in refs:
                left = room - sum(len(encoded.ids) for encoded in found.values())
                found[ref] = self._encoded(family, variant, media[ref], left)
            return found

        return await asyncio.get_running_loop().run_in_executor(self._thread, run)

    def _encoded(self, family: Family, variant: Variant, placed: Placed, room: int) -> Encoded:
        part = placed.part
        key = hashlib.sha256(f"{part.kind} {part.format}\n".encode() + part.data).digest()
        encoded = self._known.get(key)
        if encoded is not None:
            self._known.move_to_end(key)
            return encoded
        encoded = ask(
            family, lambda family: _marked(cast("MediaFamily", family).encode(variant, part, placed.param, room)), Encoded
        )
        self._known[key] = encoded
        self._positions += len(encoded.ids)
        while self._positions > self._limit:
            _, forgotten = self._known.popitem(last=False)
            self._positions -= len(forgotten.ids)
        return encoded


def _marked(positions: Sequence[Sequence[int]]) -> Encoded:
    codes = tuple(struct.pack(f"<{len(position)}H", *position) for position in positions)
    return Encoded(tuple(map(mark_of, codes)), codes)
