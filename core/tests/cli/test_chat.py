"""`colibri chat`: the loop, with lines read from a list."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from colibri.cli.chat import Conversation, _show
from colibri.cli.client import Client, Delta

CTRL_C, CTRL_D = KeyboardInterrupt, EOFError


def reader(*lines: Any) -> Any:
    queue = iter(lines)

    def read(prompt: str) -> str:
        line = next(queue, CTRL_D)
        if isinstance(line, str):
            return line
        raise line

    return read


def hold(server: Any, *lines: Any, system: str | None = None, put: Any = lambda delta: None) -> Conversation:
    conversation = Conversation(Client(server.url), "bird-1", system, {"temperature": 0}, reader(*lines), _show(put))
    conversation.hold()
    return conversation


def test_turns_add_up(server: Any) -> None:
    server.says("tweet", reasoning="hm")
    conversation = hold(server, "hello", "", "again", system="be a bird")
    assert conversation.messages == [
        {"role": "system", "content": "be a bird"},
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "tweet"},
        {"role": "user", "content": "again"},
        {"role": "assistant", "content": "tweet"},
    ]
    assert [len(request["messages"]) for request in server.requests] == [2, 4]
    assert server.requests[0]["temperature"] == 0


def test_commands(server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    server.says("tweet")
    conversation = hold(server, "hello", ":reset", ":system be kind", ":help", ":nonsense", ":quit", "never said")
    assert conversation.messages == [{"role": "system", "content": "be kind"}]
    out = capsys.readouterr().out
    assert "(forgotten)" in out
    assert "no command :nonsense" in out
    assert len(server.requests) == 1
    assert hold(server, ":system x", ":system").messages == []


def test_a_line_can_go_on(server: Any) -> None:
    server.says("tweet")
    assert hold(server, "one\\", "two").messages[0]["content"] == "one\ntwo"


def test_ctrl_c_stops_an_answer_and_keeps_what_was_said(server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    server.says("one ", "two ", "three")

    def put(delta: Delta) -> None:
        if delta.text == "three":
            raise KeyboardInterrupt

    conversation = hold(server, "count", put=put)
    assert conversation.messages[-1] == {"role": "assistant", "content": "one two "}
    assert "(stopped)" in capsys.readouterr().out


def test_ctrl_c_twice_leaves_and_once_does_not(server: Any) -> None:
    server.says("tweet")
    assert hold(server, CTRL_C, CTRL_C, "never said").messages == []
    assert len(hold(server, CTRL_C, "hello", CTRL_C, "again", CTRL_D).messages) == 4


def test_a_turn_that_failed_can_be_typed_again(server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    server.events = [{"error": {"message": "the engine died"}}]
    assert hold(server, "hello").messages == []
    assert "the engine died" in capsys.readouterr().out


def test_an_empty_answer_is_no_turn(server: Any) -> None:
    server.says()
    assert hold(server, "hello").messages == []


def test_reasoning_is_set_apart(capsys: pytest.CaptureFixture[str]) -> None:
    def deltas() -> Iterator[Delta]:
        yield Delta("reasoning", "hm")
        yield Delta("content", "tweet")

    assert _show(lambda delta: print(delta.text, end=""))(deltas()) == ("tweet", False)
    assert capsys.readouterr().out == "hm\n\ntweet\n"


def test_chat_command_greets_and_leaves(colibri: Any, server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colibri.cli.chat._reader", lambda: reader(":quit"))
    status, out, err = colibri("chat", "--url", server.url)
    assert (status, err) == (0, "")
    assert out == f"bird-1 at {server.url}. :help shows what else you can type.\n"
