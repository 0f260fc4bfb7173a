"""Standard streams as commands need them: there, and able to print whatever a model writes."""

from __future__ import annotations

import io
import os
import sys


def prepare() -> None:
    """Stand in for streams that the program was started without, and let no character that a terminal lacks end it.

    A file or socket opened later would take a closed stream's number, and be taken for it by whoever writes there.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - open to the end
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def abandon() -> None:
    """Nobody reads standard output, or it has no room: point it elsewhere, so that the last flush does not complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
