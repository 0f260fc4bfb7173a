"""kill -9 of the engine in the middle of a stream, as an operator would see it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable

import openai
import psutil
import pytest

from .conftest import Server


def worker_of(server: Server) -> psutil.Process:
    children = psutil.Process(server.process.pid).children(recursive=True)
    [worker] = [c for c in children if "colibri.engine.worker" in " ".join(c.cmdline())]
    return worker


def kill_after(count: int, stream: Iterable[object], server: Server) -> None:
    """Read a stream to its end, and kill the engine after `count` chunks."""
    for number, _ in enumerate(stream, 1):
        if number == count:
            os.kill(worker_of(server).pid, signal.SIGKILL)


def test_kill_mid_stream(model: str) -> None:
    server = Server(model, "--ctx", "2048")
    try:
        server.wait(200)
        with openai.OpenAI(base_url=server.url + "/v1", api_key="local", max_retries=0, timeout=120) as client:
            name = client.models.list().data[0].id
            messages = [{"role": "user", "content": "Write a long story about a river."}]
            stream = client.chat.completions.create(
                model=name, messages=messages, temperature=0, max_tokens=400, stream=True
            )
            with stream, pytest.raises(openai.APIError, match="SIGKILL"):
                kill_after(5, stream, server)
            server.wait(200)
            reply = client.chat.completions.create(model=name, messages=messages, temperature=0, max_tokens=8)
            assert reply.choices[0].message.content
        worker = worker_of(server)
    finally:
        server.close()
    assert not worker.is_running()
