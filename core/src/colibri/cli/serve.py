"""`colibri serve`: load a model and answer until told to stop."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, TextIO

from msgspec import Struct

from ..errors import SettingError
from ..settings import Settings, add_flags
from .commands import INTERRUPTED, Commands, plugins_of, settings_of

if TYPE_CHECKING:
    from ..plugins import Plugins
    from ..serve.request import Service


class Running(Struct, frozen=True):
    """A server that listens; what life-cycle hooks get to see."""

    url: str
    settings: Settings
    service: Service


def add(commands: Commands) -> None:
    """Add the command."""
    add_flags(commands.add("serve", run, "serve a model over HTTP"))


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C or SIGTERM."""
    settings = with_model(settings_of(args))
    from ..http.loop import run as run_loop

    return run_loop(_until_told(settings, plugins_of(settings)))


def with_model(settings: Settings) -> Settings:
    """The settings, if they name a model. Raises SettingError saying how to get and name one."""
    if settings.model is not None:
        return settings
    raise SettingError(
        "no model given: use --model PATH (or COLI_MODEL, or model in colibri.toml) with a folder of safetensors files or a "
        "GGUF file. To get one: pip install huggingface_hub && hf download ORG/NAME --local-dir PATH. "
        "`colibri families` shows which models the installed plugins serve."
    )


@contextlib.asynccontextmanager
async def serving(settings: Settings, plugins: Plugins, on_progress: Callable[[str, float], None]) -> AsyncIterator[Running]:
    """Load the model and listen; on leaving, stop listening, let running answers end, and unload.

    It listens before the model is loaded: a port that is taken shows at once, and /health tells how loading goes.
    """
    from ..api.app import build
    from ..http import server as http
    from ..serve.service import ModelService

    service = await ModelService.open(settings, plugins, on_progress, wait=False)
    try:
        server = await http.serve(build(service, settings, plugins))
        running = Running(_url(settings.host, server.port), settings, service)
        try:
            await service.loaded()
            await plugins.server_started(running)
            try:
                yield running
            finally:
                await plugins.server_stopping(running)
        finally:
            await server.close(overdue=service.close)
    finally:
        await service.close()


def _url(host: str, port: int) -> str:
    """An address a client on this machine can use."""
    name = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)
    return f"http://[{name}]:{port}" if ":" in name and not name.startswith("[") else f"http://{name}:{port}"


async def _until_told(settings: Settings, plugins: Plugins) -> int:
    """Serve until a signal: the first lets running answers end, the second does not wait for them."""
    ready, stop = asyncio.Event(), asyncio.Event()

    async def serve() -> None:
        with Progress() as progress:
            async with serving(settings, plugins, progress) as running:
                progress.clear()
                print(greeting(running), flush=True)
                ready.set()
                await stop.wait()
                print("Stopping: answers under way may end; Ctrl-C again does not wait for them.", file=sys.stderr)

    task = asyncio.create_task(serve())

    def told() -> None:
        if ready.is_set() and not stop.is_set():
            stop.set()
        else:
            task.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told)
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return 0 if ready.is_set() else INTERRUPTED


def greeting(running: Running) -> str:
    """The lines that tell a person that the server is ready, and how to try it."""
    service, url = running.service, running.url
    key = ' -H "Authorization: Bearer $COLI_API_KEY"' if running.settings.api_key else ""
    body = shlex.quote(f'{{"model": "{service.model_id}", "messages": [{{"role": "user", "content": "Hello!"}}]}}')
    return (
        f"Ready: {service.model_id} ({service.variant.title}) at {url}\n"
        f"Try:   curl {url}/v1/chat/completions{key} -H 'Content-Type: application/json' -d {body}\n"
        "Stop:  Ctrl-C"
    )


class Progress:
    """Shows on stderr how far loading is: a line that changes on a terminal, a line a stage elsewhere unless `quiet`."""

    def __init__(self, out: TextIO | None = None, *, quiet: bool = False) -> None:
        self._out = out or sys.stderr
        self._quiet = quiet
        self._live = self._out.isatty()
        self._stage = ""

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exc: object) -> None:
        self.clear()

    def __call__(self, stage: str, fraction: float) -> None:
        """`stage` in words, `fraction` from 0 to 1."""
        if not stage:
            return
        if self._live:
            print(f"\r{stage} {fraction:4.0%}\x1b[K", end="", file=self._out, flush=True)
        elif stage != self._stage and not self._quiet:
            print(stage, file=self._out, flush=True)
        self._stage = stage

    def clear(self) -> None:
        """Take the changing line away."""
        if self._live and self._stage:
            print("\r\x1b[K", end="", file=self._out, flush=True)
            self._stage = ""
