"""Response heads."""

from __future__ import annotations

import re

from colibri.http.head import response_head


def test_head() -> None:
    head = response_head(404, (("content-length", "0"), ("x-request-id", "r")))
    date = rb"date: [A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT\r\n"
    assert re.fullmatch(
        rb"HTTP/1\.1 404 Not Found\r\nserver: colibri\r\n" + date + rb"content-length: 0\r\nx-request-id: r\r\n\r\n", head
    )


def test_a_value_cannot_start_another_header() -> None:
    head = response_head(200, (("x", "a\r\nset-cookie: b\x00\u2028\u0416"),))
    assert b"x: a  set-cookie: b  ?\r\n\r\n" in head
    assert b"\nset-cookie" not in head


def test_unknown_statuses_have_a_line_too() -> None:
    assert response_head(599, ()).startswith(b"HTTP/1.1 599 \r\n")
