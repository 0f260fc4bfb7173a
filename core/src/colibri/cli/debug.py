"""`colibri debug`: what a family makes of a request, an output or a model, for those who write plugins.

`render`, `parse` and `logits` read JSON Lines and write one line of JSON per line read, so that a whole file of cases
runs in one process.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from typing import BinaryIO

from ..errors import SettingError
from ..settings import Settings, add_flags
from .commands import Commands, plugins_of, settings_of

_PLUGINS = ("plugin", "plugins", "disable_plugins")
_COMPUTE = (*_PLUGINS, "model", "ctx", "kv_slots", "threads", "isa", "prefill_chunk")


def add(commands: Commands) -> None:
    """Add the command and its four sub-commands."""
    parser = commands.add("debug", _which, "show what a family makes of requests, outputs and models, as JSON Lines")
    parts = parser.add_subparsers(metavar="WHAT", title="what to show")
    for name, run, help, settings in (
        ("render", _render, "a chat request per line -> the prompt's text, pieces and token ids", _PLUGINS),
        ("parse", _parse, "an output per line -> content, reasoning, tool calls and finish reason", _PLUGINS),
        ("logits", _logits, "token ids per line -> the logits of each position", _COMPUTE),
        ("graph", _graph, "the compute plan of a model", _COMPUTE),
    ):
        part = parts.add_parser(name, help=help, description=f"{help[0].upper()}{help[1:]}.", allow_abbrev=False)
        part.set_defaults(run=run, flags=part._option_string_actions)
        if name in ("render", "parse"):
            part.add_argument("--variant", required=True, metavar="NAME", help="a variant, as `colibri families` lists it")
            part.add_argument("--tokenizer", metavar="FILE", help="tokenizer.json or GGUF file, for token ids")
        if name == "graph":
            part.add_argument("--json", action="store_true", help="print the plan as JSON")
            part.add_argument("--draft", action="store_true", help="print the plan of the model's draft head")
        else:
            part.add_argument("--file", metavar="FILE", help="read the lines from a file (default: standard input)")
        add_flags(part, settings)


def _which(args: argparse.Namespace) -> int:
    raise SettingError("debug what? One of render, parse, logits and graph; see colibri debug --help")


def _render(args: argparse.Namespace) -> int:
    from . import debug_chat

    plugins = plugins_of(settings_of(args))
    with _lines(args) as lines:
        return debug_chat.render(plugins, args.variant, args.tokenizer, lines, _write)


def _parse(args: argparse.Namespace) -> int:
    from . import debug_chat

    plugins = plugins_of(settings_of(args))
    with _lines(args) as lines:
        return debug_chat.parse(plugins, args.variant, args.tokenizer, lines, _write)


def _logits(args: argparse.Namespace) -> int:
    from . import debug_compute

    settings = _with_model(args)
    with _lines(args) as lines:
        return debug_compute.logits(settings, plugins_of(settings), lines, _write)


def _graph(args: argparse.Namespace) -> int:
    from . import debug_compute

    settings = _with_model(args)
    return debug_compute.graph(settings, plugins_of(settings), _write, args.json, draft=args.draft)


def _with_model(args: argparse.Namespace) -> Settings:
    settings = settings_of(args)
    if settings.model is None:
        raise SettingError("no model given: use --model PATH")
    return settings


@contextlib.contextmanager
def _lines(args: argparse.Namespace) -> Iterator[BinaryIO]:
    """Standard input, or the file of `--file`: bytes, so that a line that is no text fails alone."""
    if args.file is None:
        if sys.stdin is None:
            raise SettingError("nothing to read: standard input is closed; use --file FILE")
        yield sys.stdin.buffer
        return
    try:
        file = open(args.file, "rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise SettingError(f"flag --file: {args.file}: {error.strerror}") from None
    with file:
        yield file


def _write(text: str) -> None:
    """JSON is UTF-8 whatever the terminal's encoding; half a surrogate pair, which UTF-8 lacks, is escaped as in JSON."""
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace") + b"\n")
    sys.stdout.buffer.flush()
