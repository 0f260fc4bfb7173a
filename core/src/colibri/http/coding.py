"""Content codings of request bodies."""

from __future__ import annotations

import importlib
import zlib
from typing import Any

from ..errors import BadRequest, TooLarge

#: Modules that decode zstd: the standard library's (3.14) and its backport.
_ZSTD_MODULES = ("compression.zstd", "backports.zstd")


def decode_body(body: bytes, coding: str, limit: int) -> bytes:
    """`body` without its Content-Encoding. Raises BadRequest (415 for an unknown coding), or TooLarge past `limit` bytes."""
    coding = coding.strip().lower()
    if coding in ("", "identity"):
        return body
    if coding in ("gzip", "x-gzip"):
        return _inflate(body, coding, zlib.decompressobj(31), zlib.error, limit)
    if coding == "deflate":
        return _inflate(body, coding, zlib.decompressobj(), zlib.error, limit)
    if coding == "zstd" and (zstd := _zstd()) is not None:
        return _inflate(body, coding, zstd.ZstdDecompressor(), zstd.ZstdError, limit)
    known = "gzip, deflate and zstd" if _zstd() is not None else "gzip and deflate (zstd needs the package backports.zstd)"
    raise BadRequest(
        f"Content-Encoding {coding[:60]!r} is not supported here; supported are {known}.",
        status=415,
        code="unsupported_content_encoding",
    )


def _inflate(body: bytes, coding: str, decoder: Any, error: type[Exception], limit: int) -> bytes:
    # One byte past the limit is enough to know: a small body can stand for gigabytes.
    try:
        plain: bytes = decoder.decompress(body, limit + 1)
    except error:
        plain, whole = b"", False
    else:
        whole = decoder.eof and not decoder.unused_data
    if len(plain) > limit:
        raise TooLarge(f"The request body is larger than {limit} bytes once its {coding} coding is undone.")
    if not whole:
        raise BadRequest(f"The request body is not whole or not {coding}, which its Content-Encoding says it is.")
    return plain


def _zstd() -> Any:
    for name in _ZSTD_MODULES:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None
