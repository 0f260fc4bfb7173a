"""The command line: one module per command, each imported whole only when it runs."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Sequence

from .. import __version__
from ..errors import ColibriError, SettingError
from ..settings import load_settings, nearest
from . import chat, convert, debug, doctor, families, new_family, run, serve, streams
from .commands import INTERRUPTED, Commands

_CORE = (serve, chat, run, convert, families, new_family, doctor, debug)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit status: 0 done, 1 a negative result, 2 an error, told in one line."""
    streams.prepare()
    try:
        status = _dispatch(sys.argv[1:] if argv is None else list(argv))
        sys.stdout.flush()
        return status
    except ColibriError as error:
        if os.environ.get("COLI_DEBUG"):
            raise
        print(f"colibri: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        streams.abandon()
        return 0
    except Exception as error:
        if os.environ.get("COLI_DEBUG"):
            raise
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            streams.abandon()  # what could not be written would be tried again at the end
            print(f"colibri: {error.strerror}", file=sys.stderr)
            return 2
        print(f"colibri: internal error: {type(error).__name__}: {error} (COLI_DEBUG=1 shows where)", file=sys.stderr)
        return 2


def _dispatch(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="colibri", description="Serve large language models on this machine.", allow_abbrev=False
    )
    parser.add_argument("--version", action="store_true", help="print versions and how the runtime was built")
    commands = Commands(parser)
    for module in _CORE:
        module.add(commands)
    wanted = next((word for word in argv if not word.startswith("-")), None)
    if wanted not in commands.names and "--version" not in argv:
        # Only help and commands that aren't core's need the plugins.
        from ..plugins import load_plugins

        load_plugins(load_settings({}, os.environ).settings).add_commands(commands)
        if wanted is not None and wanted not in commands.names:
            parser.exit(2, f"colibri: {commands.unknown(wanted)}\n")
    args, strange = parser.parse_known_args(argv)
    if strange:
        flag, known = strange[0].split("=")[0], getattr(args, "flags", ())
        raise SettingError(f"unexpected {flag!r} on the command line{nearest(flag, known)}")
    if args.version:
        print(_versions())
        return 0
    if not hasattr(args, "run"):
        parser.print_help()
        return 0
    if getattr(args, "show_settings", False):
        print("\n".join(load_settings(vars(args), os.environ).lines()))
        return 0
    status: int = args.run(args)
    return status


def _versions() -> str:
    try:
        from .. import _native
    except ImportError as error:
        native = f"not usable: {error}"
    else:
        native = _native.build_info()
    return f"colibri {__version__} (native runtime: {native}), Python {sys.version.split()[0]}"
