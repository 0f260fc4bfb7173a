"""`colibri chat`: a conversation in the terminal."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from ..errors import ColibriError
from ..settings import add_flags
from . import session
from .client import Client, Delta, Message
from .commands import Commands, settings_of

HELP = """\
:reset          forget the conversation
:system TEXT    set the system message and start over
:quit           leave (so does Ctrl-D, or Ctrl-C twice)
Ctrl-C stops an answer. A line that ends in \\ goes on in the next one."""


def add(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add("chat", run, "talk to a model in the terminal")
    session.add_flags(parser)
    add_flags(parser, session.SETTINGS)


def run(args: argparse.Namespace) -> int:
    """Read lines, stream answers, until the end."""
    settings = settings_of(args)
    with session.connected(args, settings) as client:
        model = client.models()[0]
        print(f"{model} at {client.url}. :help shows what else you can type.")
        Conversation(client, model, args.system, session.request_fields(args, settings), _reader(), _printer()).hold()
    return 0


#: Reads one line after a prompt. Raises EOFError at the end and KeyboardInterrupt on Ctrl-C.
Read = Callable[[str], str]

#: Shows a stream of deltas and returns the answer's text so far, also when it was interrupted (second item).
Show = Callable[[Iterator[Delta]], tuple[str, bool]]


class Conversation:
    """The loop of a chat: what was said, and what the user types next."""

    def __init__(
        self, client: Client, model: str, system: str | None, fields: dict[str, Any], read: Read, show: Show
    ) -> None:
        self._client, self._model, self._fields = client, model, fields
        self._read, self._show = read, show
        self._system = system
        self.messages: list[Message] = []
        self._reset()

    def hold(self) -> None:
        """Talk until the user leaves."""
        leaving = False
        while True:
            try:
                line = self._line().strip()
            except EOFError:
                print()
                return
            except KeyboardInterrupt:
                if leaving:
                    print()
                    return
                leaving = True
                print("\n(Ctrl-C again leaves)")
                continue
            leaving = False
            if line.startswith(":"):
                if not self._command(line):
                    return
            elif line:
                self._say(line)

    def _line(self) -> str:
        line = self._read("> ")
        while line.endswith("\\"):
            line = line[:-1] + "\n" + self._read("… ")
        return line

    def _command(self, line: str) -> bool:
        """Do what a `:word` says; False ends the conversation."""
        word, _, rest = line.partition(" ")
        if word in (":quit", ":q", ":exit"):
            return False
        if word == ":reset":
            self._reset()
            print("(forgotten)")
        elif word == ":system":
            self._system = rest.strip() or None
            self._reset()
            print("(system message set)" if self._system else "(no system message)")
        else:
            print(HELP if word in (":help", ":h") else f"no command {word}\n{HELP}")
        return True

    def _reset(self) -> None:
        self.messages = [{"role": "system", "content": self._system}] if self._system else []

    def _say(self, line: str) -> None:
        self.messages.append({"role": "user", "content": line})
        try:
            with contextlib.closing(self._client.chat(self._model, self.messages, **self._fields)) as deltas:  # type: ignore[type-var]
                text, cut = self._show(deltas)
        except ColibriError as error:
            self.messages.pop()  # the turn did not happen: it may be typed again
            print(f"\n{error}")
            return
        if cut:
            print("\n(stopped)")
        if text:
            self.messages.append({"role": "assistant", "content": text})
        else:
            self.messages.pop()


def _reader() -> Read:
    """prompt_toolkit's line editor where it is installed, else `input`, with history where readline is."""
    try:
        from prompt_toolkit import PromptSession
    except ImportError:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 - importing it is what gives `input` its history
        return input
    import sys

    return PromptSession[str]().prompt if sys.stdin.isatty() else input


def _printer() -> Show:
    """rich's markup for reasoning where it is installed and the output is a terminal, else plain text."""
    try:
        from rich.console import Console
    except ImportError:
        return _show(lambda delta: print(delta.text, end="", flush=True))
    console = Console(highlight=False, markup=False, emoji=False)
    return _show(
        lambda delta: console.print(delta.text, end="", style="dim" if delta.kind == "reasoning" else None, soft_wrap=True)
    )


def _show(put: Callable[[Delta], None]) -> Show:
    def show(deltas: Iterator[Delta]) -> tuple[str, bool]:
        said: list[str] = []
        kind = None
        try:
            for delta in deltas:
                if kind == "reasoning" and delta.kind == "content":
                    print("\n")
                kind = delta.kind
                put(delta)
                if delta.kind == "content":
                    said.append(delta.text)
        except KeyboardInterrupt:
            return "".join(said), True
        print()
        return "".join(said), False

    return show
