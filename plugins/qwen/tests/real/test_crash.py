"""kill -9 of the engine in the middle of a stream, as an operator would see it."""

from __future__ import annotations

import os
import signal

import openai
import psutil

from .conftest import Server


def worker_of(server: Server) -> psutil.Process:
    children = psutil.Process(server.process.pid).children(recursive=True)
    [worker] = [c for c in children if "colibri.engine.worker" in " ".join(c.cmdline())]
    return worker


def test_kill_mid_stream(model: str) -> None:
    server = Server(model, "--ctx", "2048")
    try:
        server.wait(200)
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="local", max_retries=0, timeout=60)
        name = client.models.list().data[0].id
        messages = [{"role": "user", "content": "Write a long story about a river."}]
        stream = client.chat.completions.create(model=name, messages=messages, temperature=0, max_tokens=400, stream=True)
        error = None
        try:
            for number, _ in enumerate(stream):
                if number == 5:
                    os.kill(worker_of(server).pid, signal.SIGKILL)
        except openai.APIError as caught:
            error = caught
        assert error is not None, "the stream must end with an error"
        assert "SIGKILL" in str(error)
        server.wait(200)
        reply = client.chat.completions.create(model=name, messages=messages, temperature=0, max_tokens=8)
        assert reply.choices[0].message.content
    finally:
        server.close()
    assert not psutil.pid_exists(server.process.pid) or server.process.returncode is not None
