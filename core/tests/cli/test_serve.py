"""`colibri serve`: what is opened and closed in which order, what a person is told, and how it ends."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import socket
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from colibri.cli.serve import Progress, Running, _url, greeting, serving
from colibri.engine.figures import Figures
from colibri.errors import ColibriError, EngineError
from colibri.family import Capabilities, Variant
from colibri.plugins import Plugins
from colibri.serve.service import ModelService
from colibri.settings import Settings


class Service:
    """A model that loads and answers health; `log` says what happened to it."""

    model_id = "bird-1"
    created = 0
    variant = Variant("bird", "Bird", Capabilities())
    max_tokens = 16
    slots = 1

    def __init__(self, log: list[str], failure: Exception | None = None) -> None:
        self.log = log
        self.failure = failure

    async def loaded(self) -> None:
        self.log.append("loaded")
        if self.failure is not None:
            raise self.failure

    async def close(self) -> None:
        self.log.append("closed")

    def figures(self) -> Figures:
        return Figures()

    def health(self) -> tuple[bool, dict[str, object]]:
        return True, {"status": "ok"}


@pytest.fixture
def log() -> list[str]:
    return []


@pytest.fixture
def opens(monkeypatch: pytest.MonkeyPatch, log: list[str]) -> Callable[..., None]:
    """Makes ModelService.open give a fake one."""

    def opens(failure: Exception | None = None) -> None:
        async def open(settings: Settings, plugins: Plugins, on_progress: Any, *, wait: bool) -> Service:
            log.append("opened")
            on_progress("reading weights", 0.5)
            return Service(log, failure)

        monkeypatch.setattr(ModelService, "open", open)

    return opens


class Hooks(Plugins):
    """Plugins that write down when the life-cycle hooks run."""

    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self._log = log

    async def server_started(self, server: Any) -> None:
        self._log.append(f"started {server.url}")

    async def server_stopping(self, server: Any) -> None:
        self._log.append("stopping")


def get(url: str) -> int:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return int(answer.status)


def test_order_of_opening_and_closing(opens: Any, log: list[str]) -> None:
    opens()
    stages: list[str] = []

    async def scenario() -> str:
        async with serving(Settings(port=0), Hooks(log), lambda stage, fraction: stages.append(stage)) as running:
            log.append("running")
            assert await asyncio.to_thread(get, running.url + "/health") == 200
            return running.url

    url = asyncio.run(scenario())
    assert log == ["opened", "loaded", f"started {url}", "running", "stopping", "closed"]
    assert stages == ["reading weights"]
    with pytest.raises(OSError, match="refused"):
        get(url + "/health")


def test_a_model_that_does_not_load_leaves_nothing_behind(opens: Any, log: list[str]) -> None:
    opens(EngineError("not enough memory"))

    async def scenario() -> None:
        async with serving(Settings(port=0), Hooks(log), lambda stage, fraction: None):
            pytest.fail("it must not get here")

    with pytest.raises(EngineError, match="not enough memory"):
        asyncio.run(scenario())
    assert log == ["opened", "loaded", "closed"]


def test_a_port_in_use_is_told_before_the_model_is_loaded(opens: Any, log: list[str], colibri: Any) -> None:
    opens()
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        status, out, err = colibri("serve", "--model", "m", "--port", port)
    assert (status, out) == (2, "")
    assert f"port {port} on 127.0.0.1 is in use already" in err.splitlines()[-1]
    assert log == ["opened", "closed"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_until_a_signal(
    opens: Any, log: list[str], colibri: Any, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    opens()

    def greet_and_stop(running: Running) -> str:
        os.kill(os.getpid(), number)  # the loop hears it once it runs again, when the server is ready
        return greeting(running)

    monkeypatch.setattr("colibri.cli.serve.greeting", greet_and_stop)
    status, out, err = colibri("serve", "--model", "m", "--port", "0")
    assert status == 0
    assert out.startswith("Ready: bird-1 (Bird) at http://127.0.0.1:")
    assert err.splitlines()[0] == "reading weights"
    assert err.splitlines()[-1].startswith("Stopping: ")
    assert log == ["opened", "loaded", "closed"]


def test_a_signal_while_loading_ends_it(opens: Any, log: list[str], colibri: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    opens()

    async def load_forever(self: Service) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()

    monkeypatch.setattr(Service, "loaded", load_forever)
    status, out, _ = colibri("serve", "--model", "m", "--port", "0")
    assert (status, out) == (130, "")
    assert log == ["opened", "closed"]


def test_greeting_can_be_pasted() -> None:
    service: Any = Service([])
    lines = greeting(Running("http://127.0.0.1:1", Settings(), service)).splitlines()
    assert lines[0] == "Ready: bird-1 (Bird) at http://127.0.0.1:1"
    assert lines[1] == (
        "Try:   curl http://127.0.0.1:1/v1/chat/completions -H 'Content-Type: application/json' "
        """-d '{"model": "bird-1", "messages": [{"role": "user", "content": "Hello!"}]}'"""
    )
    assert lines[2] == "Stop:  Ctrl-C"
    with_key = greeting(Running("http://127.0.0.1:1", Settings(api_key="hunter2"), service))
    assert '-H "Authorization: Bearer $COLI_API_KEY"' in with_key
    assert "hunter2" not in with_key


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("::", "http://[::1]:80"),
        ("::1", "http://[::1]:80"),
        ("[::1]", "http://[::1]:80"),
        ("bird.example", "http://bird.example:80"),
    ],
)
def test_addresses(host: str, url: str) -> None:
    assert _url(host, 80) == url


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_a_changing_line_on_a_terminal() -> None:
    out = Terminal()
    with Progress(out) as progress:
        progress("reading", 0.25)
        progress("reading", 1.0)
    assert out.getvalue() == "\rreading  25%\x1b[K\rreading 100%\x1b[K\r\x1b[K"


def test_progress_is_a_line_a_stage_elsewhere() -> None:
    out, quiet = io.StringIO(), io.StringIO()
    for progress in (Progress(out), Progress(quiet, quiet=True)):
        for stage, fraction in (("", 0.0), ("reading", 0.1), ("reading", 0.9), ("warming up", 0.5)):
            progress(stage, fraction)
        progress.clear()
    assert out.getvalue() == "reading\nwarming up\n"
    assert quiet.getvalue() == ""


def test_a_session_has_its_own_server(opens: Any, log: list[str], colibri: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`colibri chat` without --url starts a server on a free port and takes it down again."""

    def leave(prompt: str) -> str:
        raise EOFError

    opens()
    monkeypatch.setattr("colibri.cli.chat._reader", lambda: leave)
    status, out, err = colibri("chat", "--model", "m")
    assert (status, err) == (0, "")
    assert out.startswith("bird-1 at http://127.0.0.1:")
    assert log == ["opened", "loaded", "closed"]


def test_a_session_whose_model_does_not_load(opens: Any, log: list[str], colibri: Any) -> None:
    opens(ColibriError("not a model"))
    assert colibri("chat", "--model", "m") == (2, "", "colibri: not a model\n")
    assert log == ["opened", "loaded", "closed"]
