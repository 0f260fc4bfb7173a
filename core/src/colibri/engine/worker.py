"""The engine process: `python -m colibri.engine.worker`, started by the gateway with a socket it inherits.

It owns the model. A thread reads frames, the main thread loads and then steps, and a thread writes. The process ends
with its socket, however the gateway went away.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import logging
import os
import queue
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

import msgspec

from ..errors import ColibriError
from ..settings import Settings
from .conversations import kept_conversations
from .drafts.build import draft_rows, drafts_for
from .fairness import Fairness
from .frames import Cancel, Error, Progress, Ready, Resumed, Shutdown, Stop, Submit, ToEngine
from .outbox import Outbox
from .planner import Planner
from .telemetry import Telemetry
from .upkeep import LOOK, Upkeep, upkeep_of
from .wire import BrokenStream, Malformed, Unpacker, engine_side

if TYPE_CHECKING:
    from ..compute.runtime import Runtime

#: The variable that carries the settings as JSON; an argument would show them to every user of the machine.
SETTINGS = "COLI_WORKER_SETTINGS"

#: How long a step may still run once the gateway is gone, in seconds.
GRACE = 5.0

log = logging.getLogger(__name__)

OnProgress = Callable[[str, float], None]
Load = Callable[[Settings, OnProgress], "Runtime"]


def load(settings: Settings, progress: OnProgress) -> Runtime:
    """The runtime of the model that `settings` names. Raises CheckpointError, PluginError or SettingError."""
    from ..compute.budget import GB
    from ..compute.checkpoint import open_checkpoint
    from ..compute.experts import Streaming
    from ..compute.load import DEFAULT_CONTEXT, load_runtime
    from ..errors import SettingError
    from ..plugins import load_plugins

    if settings.model is None:
        raise SettingError("no model is given; name one with --model")
    checkpoint = open_checkpoint(settings.model)
    family, _ = load_plugins(settings).family_for(checkpoint)
    chunk = min(settings.prefill_chunk, settings.ctx or DEFAULT_CONTEXT)
    return load_runtime(
        family,
        checkpoint,
        context=settings.ctx,
        slots=settings.kv_slots,
        max_rows=chunk + settings.kv_slots + draft_rows(settings),
        threads=settings.threads,
        isa=settings.isa,
        ram=int(settings.ram * GB),
        streaming=Streaming(settings.io_threads, Path(settings.mirror).expanduser() if settings.mirror else None),
        drafts=settings.mtp if settings.spec else False,
        progress=progress,
    )


def serve(channel: socket.socket, settings: Settings, load: Load) -> int:
    """Load, then answer until the gateway says so or goes away. Returns the exit status."""
    inbox: queue.SimpleQueue[ToEngine | Malformed] = queue.SimpleQueue()
    outbox = Outbox(channel.sendall)
    loaded = Event()
    Thread(target=_read, args=(channel, inbox, loaded), name="inbox", daemon=True).start()
    try:
        runtime = load(settings, _in_percent(lambda stage, fraction: outbox.put(Progress(stage, fraction))))
        conversations = kept_conversations(settings, runtime)
        if conversations is not None:
            for slot, ids in conversations.start(lambda stage, fraction: outbox.put(Progress(stage, fraction))):
                outbox.put(Resumed(slot, ids))
        drafts = drafts_for(runtime, settings)
        telemetry = Telemetry(runtime, outbox.put)
        planner = Planner(
            runtime, telemetry.emit, chunk=settings.prefill_chunk, drafts=drafts, fairness=Fairness(), slots=conversations
        )
        upkeep = upkeep_of(settings, runtime)
        if upkeep is not None:
            upkeep.start()
        loaded.set()
        outbox.put(
            Ready(runtime.context, runtime.slots, runtime.vocab, runtime.describe(), runtime.codes, runtime.sequential)
        )
        telemetry.start()
        _run(planner, inbox, telemetry, upkeep)
        if upkeep is not None:
            upkeep.save()
        if conversations is not None:
            conversations.close(lambda stage, fraction: outbox.put(Progress(stage, fraction)))
    except ColibriError as error:
        return _fail(outbox, Error(None, error.code or "engine_error", error.message))
    except MemoryError:
        reason = "there is not enough memory for the model and its slots; lower --ctx or --kv-slots"
        return _fail(outbox, Error(None, "out_of_memory", reason))
    except Exception as error:
        log.debug("the engine failed", exc_info=True)
        reason = " ".join(str(error).split())
        return _fail(outbox, Error(None, "engine_error", f"the engine failed: {type(error).__name__}: {reason}"))
    outbox.close(GRACE)
    return 0


def _in_percent(progress: OnProgress) -> OnProgress:
    """Passes progress on when the stage is new or another hundredth is done: loaders tell more than anyone can see."""
    told: list[tuple[str, int]] = []

    def filtered(stage: str, fraction: float) -> None:
        now = (stage, int(fraction * 100))
        if told != [now]:
            told[:] = [now]
            progress(stage, fraction)

    return filtered


def _run(
    planner: Planner, inbox: queue.SimpleQueue[ToEngine | Malformed], telemetry: Telemetry, upkeep: Upkeep | None
) -> None:
    while True:
        while not planner.busy or not inbox.empty():
            try:
                frame = inbox.get(timeout=LOOK)
            except queue.Empty:
                break
            if isinstance(frame, Shutdown):
                return
            _handle(planner, frame)
        if planner.busy:
            planner.step()
        telemetry.look()
        if upkeep is not None:
            upkeep.look()


def _handle(planner: Planner, frame: ToEngine | Malformed) -> None:
    if isinstance(frame, Submit):
        planner.submit(frame)
    elif isinstance(frame, Stop):
        planner.stop(frame.id)
    elif isinstance(frame, Cancel):
        planner.cancel(frame.id)
    elif isinstance(frame, Malformed):
        if frame.id is None:
            log.warning("a frame that can't be read was ignored: %s", frame.reason)
        else:
            planner.fail(frame.id, "bad_frame", f"The engine could not read the request: {frame.reason}")


def _read(channel: socket.socket, inbox: queue.SimpleQueue[ToEngine | Malformed], loaded: Event) -> None:
    """Move frames to the inbox. At the end of the stream, end the process: soon by itself, else by force."""
    unpacker: Unpacker[ToEngine] = engine_side()
    try:
        while data := channel.recv(1 << 16):
            for frame in unpacker.feed(data):
                inbox.put(frame)
                if isinstance(frame, Shutdown) and not loaded.is_set():
                    os._exit(0)  # loading can take minutes, and there is nothing to save yet
    except (OSError, BrokenStream) as error:
        log.debug("the connection to the gateway broke: %s", error)
    inbox.put(Shutdown())
    if loaded.is_set():
        time.sleep(GRACE)
    os._exit(1)


def _fail(outbox: Outbox, error: Error) -> int:
    outbox.put(error)
    outbox.close(GRACE)
    return 1


def main(argv: list[str] | None = None) -> int:
    """Run the process. SIGINT and SIGTERM are the gateway's business: a terminal or a supervisor sends them to both."""
    logging.basicConfig(format="colibri engine: %(message)s", level=logging.WARNING)
    for name in ("conversations", "kv_folder"):  # who goes on with what, and what is kept where
        logging.getLogger(f"colibri.engine.{name}").setLevel(logging.INFO)
    parser = argparse.ArgumentParser(prog="colibri.engine.worker", description="Started by colibri, not by hand.")
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--load", default=f"{__package__}.worker:load", metavar="MODULE:FUNCTION")
    options = parser.parse_args(argv)
    if SETTINGS not in os.environ:
        parser.error("the engine is started by colibri serve, not by hand")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.dup2(2, 1)  # standard output belongs to the command that started the gateway
    channel = socket.socket(fileno=options.fd)
    channel.set_inheritable(False)
    settings = msgspec.json.decode(os.environ.pop(SETTINGS), type=Settings)
    module, _, name = options.load.partition(":")
    return serve(channel, settings, getattr(importlib.import_module(module), name))


if __name__ == "__main__":
    sys.exit(main())
