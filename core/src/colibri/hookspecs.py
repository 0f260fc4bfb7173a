"""Every hook a plugin can implement. Hooks run at start-up or once a request, never per token.

A plugin marks a function of the same name with `colibri.hookimpl`; it may leave out arguments it has no use for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import Struct
from pluggy import HookspecMarker

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from .api.app import App
    from .cli.commands import Commands
    from .compute.checkpoint import Checkpoint
    from .serve.request import Service
    from .settings import Settings

hookspec = HookspecMarker("colibri")


class FamilyRegistrar(Protocol):
    """Takes a plugin's families.

    `family` has all of `colibri.family.Family`. With `replace`, the name of another plugin's family, it stands in for
    that one and may leave out the parts that are to stay as they are.
    """

    def __call__(self, family: object, *, replace: str | None = None) -> None: ...


class RequestRecord(Struct, frozen=True, kw_only=True):
    """One finished generation. Holds counts and times (seconds), never any text of the request or the answer.

    `error` is the stable code of the failure when `finish` is `error`.
    """

    model: str
    finish: Literal["stop", "length", "tool_calls", "cancelled", "error"]
    error: str | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    queue_seconds: float = 0.0
    seconds: float = 0.0


class Server(Protocol):
    """The running server as life-cycle hooks see it."""

    @property
    def url(self) -> str:
        """Where it listens, such as http://127.0.0.1:8000."""
        ...

    @property
    def settings(self) -> Settings:
        """The resolved settings."""
        ...

    @property
    def service(self) -> Service:
        """The served model."""
        ...


@hookspec
def register_families(register: FamilyRegistrar) -> None:
    """Offer model families by calling `register` for each."""


@hookspec(firstresult=True)
def select_family(checkpoint: Checkpoint) -> str | None:
    """Name the registered family that serves a checkpoint its config does not give away; None to pass."""


@hookspec
def add_commands(commands: Commands) -> None:
    """Add sub-commands to the command line; the names of core's own are taken."""


@hookspec
def routes(app: App) -> None:
    """Add routes under /x/<plugin>/ with `app.route`; others are refused."""


@hookspec
def server_started(server: Server) -> Awaitable[None] | None:
    """Run once the server listens, on its event loop; an exception aborts the start."""


@hookspec
def server_stopping(server: Server) -> Awaitable[None] | None:
    """Run before the server goes away, on its event loop; exceptions are logged."""


@hookspec
def request_finished(record: RequestRecord) -> None:
    """Observe a generation that has ended, whichever way; exceptions are logged and never reach the client."""
