"""What the gateway asks of an engine. The worker process on this machine is one; remote ones can follow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

from msgspec import Struct

from ..errors import Unavailable
from .figures import Figures
from .frames import Ready, Submit
from .stream import OnEnd, Stream

State = Literal["loading", "ready", "restarting", "failed", "closed"]


class Status(Struct, frozen=True):
    """How an engine is. `detail` is the stage of loading, or why it restarts or failed; `fraction` of loading is from
    0 to 1; `restarts` counts the times it died and was started again."""

    state: State
    detail: str = ""
    fraction: float = 0.0
    restarts: int = 0


class Engine(Protocol):
    """Token ids in, token ids out."""

    @property
    def status(self) -> Status:
        """How it is now."""
        ...

    @property
    def ready(self) -> Ready | None:
        """What it offers; None until it has been ready once. Kept over a restart."""
        ...

    @property
    def drafts(self) -> Mapping[str, tuple[int, int]]:
        """By source, how many tokens were drafted since the start, and how many of these were right."""
        ...

    @property
    def figures(self) -> Figures:
        """What it told of how it works."""
        ...

    def watch(self, listener: Callable[[Status], None]) -> None:
        """Call `listener` at every change of status, loading progress included."""
        ...

    async def start(self) -> None:
        """Begin to load; returns as soon as that is under way."""
        ...

    def submit(self, submit: Submit, on_end: OnEnd | None = None) -> Stream:
        """Run a request whose `id` no other request in flight has. Raises Unavailable unless the state is `ready`.

        `on_end` is called once, when the engine has let go of the request's slot, whether or not anybody reads.
        """
        ...

    def stop(self, id: int) -> None:
        """End a request as finished. Its stream still gets a Done."""
        ...

    def cancel(self, id: int) -> None:
        """Nobody reads a request any more. Its slot is free once its stream has ended. Unknown ids are ignored."""
        ...

    def nearest(self, ids: Sequence[int], free: Sequence[int]) -> int:
        """Which of the `free` slots (not empty) would have the least to compute for a prompt."""
        ...

    async def close(self) -> None:
        """Fail what is in flight and leave nothing behind. Idempotent."""
        ...


def unavailable(status: Status) -> Unavailable:
    """Why an engine in this state takes no request."""
    if status.state == "failed":
        return Unavailable(f"The model can't be served: {status.detail}.", code="engine_failed")
    if status.state == "closed":
        return Unavailable("The server is shutting down.", code="engine_closed")
    if status.state == "restarting":
        message = f"The engine is being started again: {status.detail or 'it ended unexpectedly'}."
    else:
        message = (
            f"The model is still loading ({status.detail or 'starting'}, {status.fraction:.0%}). Try again in a moment."
        )
    return Unavailable(message, headers=(("Retry-After", "2"),))
