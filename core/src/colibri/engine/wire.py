"""Frames on a byte stream: a 4-byte little-endian length, then one MessagePack map."""

from __future__ import annotations

import logging
import struct
from types import UnionType
from typing import Any, Generic, TypeVar, get_args

import msgspec
from msgspec import Struct

from .frames import MAX_FRAME, FromEngine, ToEngine, encoder

log = logging.getLogger(__name__)

F = TypeVar("F")

_LENGTH = struct.Struct("<I")


class Malformed(Struct, frozen=True):
    """A frame of a known kind that could not be read; `id` is its request where that much was readable."""

    id: int | None
    reason: str
    kind: str | None = None


class BrokenStream(Exception):
    """The stream can't be followed any further: a frame longer than MAX_FRAME was announced."""


class _Envelope(Struct, frozen=True):
    """What is still readable of a frame whose fields are wrong."""

    t: str | None = None
    id: int | None = None


def pack(frame: Struct) -> bytes:
    """A frame as it goes on the wire. Raises ValueError if it is longer than MAX_FRAME."""
    body = encoder.encode(frame)
    if len(body) > MAX_FRAME:
        raise ValueError(f"a frame of {len(body)} bytes is longer than the limit of {MAX_FRAME}")
    return _LENGTH.pack(len(body)) + body


class Unpacker(Generic[F]):
    """Cuts a byte stream into the frames of one direction. Kinds it does not know are skipped."""

    def __init__(self, kinds: UnionType) -> None:
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(kinds)
        self._tags = {kind.__struct_config__.tag for kind in get_args(kinds)}
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[F | Malformed]:
        """The frames that `data` completes. Raises BrokenStream if the rest can't be read."""
        self._buffer += data
        frames: list[F | Malformed] = []
        start = 0
        while len(self._buffer) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer, start)
            if length > MAX_FRAME:
                raise BrokenStream(f"a frame of {length} bytes was announced; the limit is {MAX_FRAME}")
            end = start + _LENGTH.size + length
            if len(self._buffer) < end:
                break
            frame = self._decode(bytes(self._buffer[start + _LENGTH.size : end]))
            if frame is not None:
                frames.append(frame)
            start = end
        del self._buffer[:start]
        return frames

    def _decode(self, body: bytes) -> F | Malformed | None:
        try:
            frame: F = self._decoder.decode(body)
        except msgspec.DecodeError as error:
            return self._salvage(body, str(error))
        return frame

    def _salvage(self, body: bytes, reason: str) -> Malformed | None:
        try:
            envelope = msgspec.msgpack.decode(body, type=_Envelope)
        except msgspec.DecodeError:
            return Malformed(None, reason)
        if envelope.t is not None and envelope.t not in self._tags:
            log.debug("a frame of unknown kind %r was ignored", envelope.t)
            return None
        return Malformed(envelope.id, reason, envelope.t)


def engine_side() -> Unpacker[ToEngine]:
    """Reads what gateways send."""
    return Unpacker(ToEngine)


def gateway_side() -> Unpacker[FromEngine]:
    """Reads what engines send."""
    return Unpacker(FromEngine)
