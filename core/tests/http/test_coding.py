"""Content codings of request bodies."""

from __future__ import annotations

import gzip
import sys
import types
import zlib

import pytest

from colibri.errors import ColibriError
from colibri.http import coding
from colibri.http.coding import decode_body


def test_known_codings() -> None:
    assert decode_body(b"plain", "", 10) == b"plain"
    assert decode_body(b"plain", "Identity", 10) == b"plain"
    assert decode_body(gzip.compress(b"plain"), " GZIP ", 10) == b"plain"
    assert decode_body(zlib.compress(b"plain"), "deflate", 10) == b"plain"


def test_the_limit_is_of_the_plain_body() -> None:
    packed = gzip.compress(b"x" * 1000)
    assert len(decode_body(packed, "gzip", 1000)) == 1000
    with pytest.raises(ColibriError, match="999 bytes") as caught:
        decode_body(packed, "gzip", 999)
    assert caught.value.status == 413


@pytest.mark.parametrize("name", ["br", "zstd", "gzip, gzip", "\x01"])
def test_unknown_codings_are_named_with_what_is_known(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coding, "_ZSTD_MODULES", ("no_such_module",))
    with pytest.raises(ColibriError, match="gzip") as caught:
        decode_body(b"", name, 10)
    assert (caught.value.status, caught.value.code) == (415, "unsupported_content_encoding")
    assert "backports.zstd" in caught.value.message


def test_zstd_is_decoded_where_a_module_for_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    # Any module with the standard library's interface will do, even one that packs in another way.
    module = types.ModuleType("fake_zstd")
    module.ZstdDecompressor = zlib.decompressobj  # type: ignore[attr-defined]
    module.ZstdError = zlib.error  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fake_zstd", module)
    monkeypatch.setattr(coding, "_ZSTD_MODULES", ("no_such_module", "fake_zstd"))
    assert decode_body(zlib.compress(b"plain"), "zstd", 10) == b"plain"
    with pytest.raises(ColibriError) as caught:
        decode_body(b"no frame", "zstd", 10)
    assert caught.value.status == 400
