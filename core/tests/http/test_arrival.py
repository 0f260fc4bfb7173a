"""Heads of requests that HTTP leaves ambiguous."""

from __future__ import annotations

import pytest

from colibri.errors import BadRequest
from colibri.http.arrival import read_head

HOST = (b"Host", b"localhost")


def test_head() -> None:
    request = read_head("GET", b"/a%20b?c=d?e#f", [HOST, (b"Accept", b" x "), (b"ACCEPT", b"y")], "1.1")
    assert (request.method, request.path, request.query) == ("GET", "/a%20b", "c=d?e")
    assert request.headers == {"host": "localhost", "accept": "x, y"}
    assert read_head("GET", b"/", [], "1.0").headers == {}


@pytest.mark.parametrize(
    ("target", "path", "host"),
    [
        (b"http://a.example:1/x?y", "/x", "a.example:1"),
        (b"HTTPS://a.example", "/", "a.example"),
        (b"http://user:pass@a.example/", "/", "a.example"),
        (b"http:///x", "/x", ""),
    ],
)
def test_absolute_targets(target: bytes, path: str, host: str) -> None:
    request = read_head("GET", target, [HOST], "1.1")
    assert (request.path, request.headers["host"]) == (path, host)


def test_the_server_itself_is_a_target_of_options_only() -> None:
    assert read_head("OPTIONS", b"*", [HOST], "1.1").path == "*"
    with pytest.raises(BadRequest):
        read_head("GET", b"*", [HOST], "1.1")


@pytest.mark.parametrize(
    ("target", "headers", "version"),
    [
        (b"/", [], "1.1"),
        (b"/", [HOST, HOST], "1.1"),
        (b"/", [HOST], "2.0"),
        (b"/", [HOST], "0.9"),
        (b"ftp://a/", [HOST], "1.1"),
        (b"a/b", [HOST], "1.1"),
        (b"", [HOST], "1.1"),
        (b"/\xc3\xa9", [HOST], "1.1"),
        (b"/", [HOST, (b"Content-Length", b"+1")], "1.1"),
        (b"/", [HOST, (b"Content-Length", b"")], "1.1"),
        (b"/", [HOST, (b"Content-Length", b"1"), (b"content-length", b"2")], "1.1"),
        (b"/", [HOST, (b"Transfer-Encoding", b"chunked, chunked")], "1.1"),
        (b"/", [HOST, (b"Transfer-Encoding", b"chunked")], "1.0"),
        (b"/", [HOST, (b"Authorization", b"a"), (b"Authorization", b"b")], "1.1"),
    ],
)
def test_what_could_be_read_two_ways_is_not_read(target: bytes, headers: list[tuple[bytes, bytes]], version: str) -> None:
    with pytest.raises(BadRequest) as caught:
        read_head("POST", target, headers, version)
    assert (caught.value.status, caught.value.code) == (400, "bad_request")
