"""The terminal's HTTP client: what it sends, and what it makes of every kind of answer."""

from __future__ import annotations

from typing import Any

import pytest

from colibri.cli.client import Client, Delta
from colibri.errors import ColibriError, SettingError


def test_models_and_key(server: Any) -> None:
    for url in (server.url, server.url + "/", server.url + "/v1", server.url.removeprefix("http://")):
        assert Client(url, "k").models() == ["bird-1"]
    assert set(server.keys) == {"Bearer k"}


def test_a_streamed_answer(server: Any) -> None:
    server.says("Hel", "lo", reasoning="hm")
    deltas = list(Client(server.url).chat("bird-1", [{"role": "user", "content": "hi"}], temperature=0))
    assert deltas == [Delta("reasoning", "hm"), Delta("content", "Hel"), Delta("content", "lo")]
    assert server.requests == [
        {"model": "bird-1", "messages": [{"role": "user", "content": "hi"}], "stream": True, "temperature": 0}
    ]


def test_text_that_was_not_utf8_is_not_sent(server: Any) -> None:
    with pytest.raises(ColibriError, match=r"^the text to send is not UTF-8: .*caf\\udce9"):
        list(Client(server.url).chat("bird-1", [{"role": "user", "content": "caf\udce9"}]))
    server.says("ok")
    list(Client(server.url).chat("bird-1", [{"role": "user", "content": "café \U0001f426"}]))
    assert server.requests[-1]["messages"][0]["content"] == "café \U0001f426"
    assert len(server.requests) == 1


def test_an_error_in_the_stream(server: Any) -> None:
    server.says("Hel")
    server.events[-1] = {"error": {"message": "the engine died (SIGKILL)"}}
    seen = []
    with pytest.raises(ColibriError, match="the engine died"):
        seen.extend(Client(server.url).chat("bird-1", []))


def test_a_stream_that_breaks_off(server: Any) -> None:
    server.says("Hel")
    server.events.pop()
    with pytest.raises(ColibriError, match="the answer broke off"):
        list(Client(server.url).chat("bird-1", []))
    server.events = ["data: {nonsense"]
    with pytest.raises(ColibriError, match="the answer broke off"):
        list(Client(server.url).chat("bird-1", []))


def test_refusals(server: Any) -> None:
    server.status, server.body = 401, {"error": {"message": "wrong key"}}
    with pytest.raises(ColibriError, match=r"^wrong key$"):
        Client(server.url).models()
    server.body = "no object"
    with pytest.raises(ColibriError, match=r"^the server answered 401 Unauthorized$"):
        Client(server.url).models()


def test_a_server_of_another_kind(server: Any) -> None:
    for server.body in ("<html>", ["bird-1"], {"data": 3}, {"data": [{"name": "bird-1"}]}):
        with pytest.raises(ColibriError, match=r"is no server of this kind: its /v1/models can't be read$"):
            Client(server.url).models()
    server.body = {"data": []}
    with pytest.raises(ColibriError, match=r"serves no model$"):
        Client(server.url).models()


def test_nobody_there() -> None:
    with pytest.raises(ColibriError, match=r"no answer from http://127.0.0.1:9: .*; is the server running there\?"):
        Client("http://127.0.0.1:9").models()


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://x:port", "http://x:99999", "http://[::1", "http://[x]:1"])
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(SettingError, match="flag --url: "):
        Client(url)
