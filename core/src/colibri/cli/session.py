"""The server a terminal command talks to: one that runs already, or one of its own for as long as it needs it."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

from msgspec.structs import replace

from ..settings import Settings
from .client import Client
from .commands import plugins_of
from .serve import Progress, serving, with_model


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of every command that holds a conversation."""
    parser.add_argument("--url", metavar="URL", help="use the server at this address instead of starting one")
    parser.add_argument("--system", metavar="TEXT", help="a system message")
    parser.add_argument("--limit", type=int, metavar="TOKENS", help="longest answer, in tokens")


#: The settings such a command takes: those of the model, and how to answer.
SETTINGS = (
    "model", "plugin", "plugins", "disable_plugins", "api_key", "ctx", "threads", "isa", "prefill_chunk", "temp", "think",
)  # fmt: skip


def request_fields(args: argparse.Namespace, settings: Settings) -> dict[str, Any]:
    """What the flags ask of each answer, as fields of a chat request."""
    fields = {"temperature": settings.temp, "enable_thinking": settings.think, "max_tokens": args.limit}
    return {name: value for name, value in fields.items() if value is not None}


@contextlib.contextmanager
def connected(args: argparse.Namespace, settings: Settings) -> Iterator[Client]:
    """A client of the server at `--url`, or of one that is started here on a free port and stopped at the end."""
    if args.url is not None:
        yield Client(args.url, settings.api_key)
        return
    # The conversations of the model's server stay its own.
    with _own_server(replace(with_model(settings), host="127.0.0.1", port=0, kv_save=False)) as url:
        yield Client(url, settings.api_key)


@contextlib.contextmanager
def _own_server(settings: Settings) -> Iterator[str]:
    """Serve from a thread with a loop of its own, so that the terminal stays free; yields the address."""
    from ..http.loop import run as run_loop

    plugins = plugins_of(settings)
    begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = Future()
    ready: Future[str] = Future()

    async def serve() -> None:
        task = asyncio.current_task()
        assert task is not None
        begun.set_result((asyncio.get_running_loop(), task))
        with Progress(quiet=True) as progress:
            async with serving(settings, plugins, progress) as running:
                progress.clear()
                ready.set_result(running.url)
                await asyncio.Event().wait()

    def live() -> None:
        try:
            run_loop(serve())
        except BaseException as error:
            if not ready.done():
                ready.set_exception(error)

    thread = threading.Thread(target=live, name="server", daemon=True)
    thread.start()
    loop, task = begun.result()
    try:
        yield ready.result()
    finally:
        with contextlib.suppress(RuntimeError):  # the loop is closed if loading failed
            loop.call_soon_threadsafe(task.cancel)
        thread.join()
