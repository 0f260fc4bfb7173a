"""`colibri run "prompt"`: one answer on standard output."""

from __future__ import annotations

import argparse
import sys

from ..errors import SettingError
from ..settings import add_flags
from . import session
from .commands import Commands, settings_of


def add(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add("run", run, "answer one prompt and stop")
    parser.add_argument("prompt", nargs="*", metavar="PROMPT", help="the prompt; text piped in is put after it")
    session.add_flags(parser)
    add_flags(parser, session.SETTINGS)


def run(args: argparse.Namespace) -> int:
    """Print the answer as it comes; reasoning goes to stderr."""
    settings = settings_of(args)
    piped = "" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.read()
    prompt = "\n\n".join(part for part in (" ".join(args.prompt), piped.strip()) if part)
    if not prompt:
        raise SettingError('no prompt given: colibri run "prompt", or pipe text in')
    messages = [{"role": "system", "content": args.system}] if args.system else []
    messages.append({"role": "user", "content": prompt})
    with session.connected(args, settings) as client:
        reasoning = False
        for delta in client.chat(client.models()[0], messages, **session.request_fields(args, settings)):
            out = sys.stdout if delta.kind == "content" else sys.stderr
            if reasoning and delta.kind == "content":
                print(file=sys.stderr)
            reasoning = delta.kind == "reasoning"
            print(delta.text, end="", file=out, flush=True)
        print()
    return 0
