"""The sub-commands of the command line: core's own and those of plugins, through one door."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import PluginError
from ..settings import Settings, load_settings, nearest

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    from ..plugins import Plugins

#: Exit status of an interrupted command, as shells give it.
INTERRUPTED = 130

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
        parser.set_defaults(run=run, flags=parser._option_string_actions)
        return parser

    @property
    def names(self) -> tuple[str, ...]:
        """The names taken so far."""
        return tuple(self._parsers.choices)

    def unknown(self, name: str) -> str:
        """What to tell a user who asked for a command that isn't there."""
        return f"no command {name!r}{nearest(name, self.names)}; see colibri --help"


def settings_of(args: argparse.Namespace) -> Settings:
    """The settings of a command whose parser has their flags; warnings go to stderr."""
    resolved = load_settings(vars(args), os.environ)
    for warning in resolved.warnings:
        print(f"colibri: warning: {warning}", file=sys.stderr)
    return resolved.settings


def plugins_of(settings: Settings) -> Plugins:
    """The plugins that `settings` allows; broken ones are told on stderr and do not stop the command."""
    from ..plugins import load_plugins

    plugins = load_plugins(settings)
    for row in plugins.broken():
        print(f"colibri: warning: plugin {row.name!r} ({row.origin}) is not in use: {row.error}", file=sys.stderr)
    return plugins
