"""Exit statuses in words."""

from __future__ import annotations

import pytest

from colibri.engine.exits import in_words


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0, "ended with exit status 0"),
        (1, "ended with exit status 1"),
        (-9, "was killed by SIGKILL (out of memory? the kernel ends the largest process first)"),
        (-4, "was killed by SIGILL (this CPU lacks an instruction; try --isa scalar)"),
        (-15, "was killed by SIGTERM"),
        (-250, "was killed by signal 250"),
    ],
)
def test_in_words(status: int, words: str) -> None:
    assert in_words(status) == words
