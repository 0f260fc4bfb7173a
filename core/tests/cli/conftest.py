"""What the command tests share: a run of the command line, and a server that answers as told."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from colibri.cli import main


@pytest.fixture(autouse=True)
def _quiet_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder, no COLI_* variable and no installed plugin, whatever the machine has."""
    import os

    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("COLI_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("COLI_PLUGINS", "")


Result = tuple[int, str, str]


@pytest.fixture
def colibri(capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """Runs a command line in this process -> status, stdout, stderr."""

    def run(*argv: str) -> Result:
        capsys.readouterr()
        try:
            status = main(argv)
        except SystemExit as stop:
            status = int(stop.code or 0)
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return status, out, err

    return run


class Server:
    """A chat server with canned answers: `events` is what a completion streams, `requests` what was asked."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.events: list[Any] = []
        self.status = 200
        self.body: Any = {"object": "list", "data": [{"id": "bird-1"}]}
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.keys.append(self.headers["Authorization"])
                self._send(server.status, json.dumps(server.body).encode())

            def do_POST(self) -> None:
                server.requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                lines = [event if isinstance(event, str) else f"data: {json.dumps(event)}" for event in server.events]
                self._send(200, "".join(f"{line}\n\n" for line in lines).encode())

            def _send(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None: ...

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def says(self, *pieces: str, reasoning: str = "") -> None:
        """Stream these pieces as the answer."""
        deltas = [{"role": "assistant", "content": ""}]
        deltas += [{"reasoning_content": reasoning}] if reasoning else []
        deltas += [{"content": piece} for piece in pieces]
        self.events = [*({"choices": [{"index": 0, "delta": delta}]} for delta in deltas), ": keep-alive", "data: [DONE]"]


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.http.shutdown()
    thread.join()
    server.http.server_close()
