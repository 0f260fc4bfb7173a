"""Tests on a real model: run by `nox -s real_model`, which sets COLIBRI_REAL_MODEL to the file."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def model() -> str:
    path = os.environ.get("COLIBRI_REAL_MODEL")
    if not path or not os.path.exists(path):
        pytest.fail("set COLIBRI_REAL_MODEL to the model's file (fetch.py prints it)")
    return path


class Server:
    """A `colibri serve` process."""

    def __init__(self, model: str, *flags: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        command = [sys.executable, "-m", "colibri", "serve", "--model", model, "--port", str(self.port), *flags]
        self.process = subprocess.Popen(command, env={**os.environ, "KVSAVE": "0"})
        self.url = f"http://127.0.0.1:{self.port}"

    def health(self) -> tuple[int, dict]:
        try:
            with urllib.request.urlopen(self.url + "/health", timeout=5) as reply:
                return reply.status, json.load(reply)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)
        except OSError:
            return 0, {}

    def wait(self, status: int, seconds: float = 120) -> dict:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            assert self.process.poll() is None, f"serve ended with {self.process.returncode}"
            now, body = self.health()
            if now == status:
                return body
            time.sleep(0.1)
        raise AssertionError(f"/health did not turn {status} in {seconds} s")

    def close(self) -> None:
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise


@pytest.fixture(scope="session")
def server(model: str) -> Iterator[Server]:
    running = Server(model, "--ctx", "4096", "--kv-slots", "4")
    try:
        running.wait(200)
        yield running
    finally:
        running.close()
