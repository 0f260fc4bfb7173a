"""The sub-commands of the command line: core's own and those of plugins, through one door."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import PluginError
from ..settings import nearest

if TYPE_CHECKING:
    from argparse import _SubParsersAction

#: What a command does with its parsed arguments; the result is the exit status.
Run = Callable[[argparse.Namespace], int]


class Commands:
    """Takes commands. A name can be used once: a plugin cannot shadow core or another plugin."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._parsers: _SubParsersAction[argparse.ArgumentParser] = parser.add_subparsers(
            metavar="COMMAND", title="commands"
        )

    def add(self, name: str, run: Run, help: str) -> argparse.ArgumentParser:
        """A new command: `run` is called with the arguments that the returned parser (to be filled) read.

        Raises PluginError when the name is taken.
        """
        if name in self.names:
            raise PluginError(f"command {name!r} exists already")
        description = f"{help[:1].upper()}{help[1:]}."
        parser = self._parsers.add_parser(name, help=help, description=description, allow_abbrev=False)
        parser.set_defaults(run=run)
        return parser

    @property
    def names(self) -> tuple[str, ...]:
        """The names taken so far."""
        return tuple(self._parsers.choices)

    def unknown(self, name: str) -> str:
        """What to tell a user who asked for a command that isn't there."""
        return f"no command {name!r}{nearest(name, self.names)}; see colibri --help"
