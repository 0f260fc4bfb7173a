"""`colibri run` against a server that runs already."""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from colibri.cli import session
from colibri.settings import Settings


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _nothing_piped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal())


def test_answer_on_stdout_reasoning_on_stderr(colibri: Any, server: Any) -> None:
    server.says("Hel", "lo", reasoning="hm")
    assert colibri("run", "say", "hello", "--url", server.url) == (0, "Hello\n", "hm\n")
    assert server.requests[0]["messages"] == [{"role": "user", "content": "say hello"}]
    assert server.requests[0]["model"] == "bird-1"


def test_options_become_fields(colibri: Any, server: Any) -> None:
    server.says("x")
    colibri("run", "hi", "--url", server.url, "--system", "be brief", "--limit", "5", "--temp", "0", "--no-think")
    request = server.requests[0]
    assert request["messages"][0] == {"role": "system", "content": "be brief"}
    assert (request["max_tokens"], request["temperature"], request["enable_thinking"]) == (5, 0, False)


def test_piped_text_follows_the_prompt(colibri: Any, server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server.says("x")
    monkeypatch.setattr(sys, "stdin", io.StringIO("some text\n"))
    colibri("run", "summarise:", "--url", server.url)
    assert server.requests[0]["messages"] == [{"role": "user", "content": "summarise:\n\nsome text"}]


def test_no_prompt(colibri: Any) -> None:
    assert colibri("run") == (2, "", 'colibri: no prompt given: colibri run "prompt", or pipe text in\n')


def test_an_error_from_the_server(colibri: Any, server: Any) -> None:
    server.events = [{"error": {"message": "queue is full"}}]
    assert colibri("run", "hi", "--url", server.url) == (2, "", "colibri: queue is full\n")


def test_a_server_of_a_command_keeps_no_conversations(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Settings] = []

    @contextlib.contextmanager
    def own(settings: Settings) -> Iterator[str]:
        seen.append(settings)
        yield "http://127.0.0.1:1"

    monkeypatch.setattr(session, "_own_server", own)
    with session.connected(argparse.Namespace(url=None), Settings(model="m", kv_save=True)):
        pass
    assert [settings.kv_save for settings in seen] == [False]
