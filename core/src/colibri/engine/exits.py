"""How a process ended, in words."""

from __future__ import annotations

import signal

_HINTS = {
    "SIGKILL": "out of memory? the kernel ends the largest process first",
    "SIGILL": "this CPU lacks an instruction; try --isa scalar",
    "SIGBUS": "a model file was cut short or its disk failed while it was being read",
    "SIGSEGV": "a memory fault",
}


def in_words(returncode: int) -> str:
    """`was killed by SIGKILL (…)` or `ended with exit status 1`, for a sentence that begins with the process."""
    if returncode >= 0:
        return f"ended with exit status {returncode}"
    try:
        name = signal.Signals(-returncode).name
    except ValueError:
        return f"was killed by signal {-returncode}"
    hint = f" ({_HINTS[name]})" if name in _HINTS else ""
    return f"was killed by {name}{hint}"
