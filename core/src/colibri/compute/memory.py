"""How much memory this process may still take: of the machine, and of the control groups it is in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil

#: What a group without a limit says in version 1: more than any machine has.
_UNLIMITED = 1 << 60


def available(root: Path = Path("/")) -> int:
    """Bytes that can be taken without swapping and without being killed for it; files that are only cached count as free."""
    return max(0, min([psutil.virtual_memory().available, *(limit - used for limit, used in _groups(root))]))


def total(root: Path = Path("/")) -> int:
    """Bytes that the machine has, or that the process may have at most."""
    return min([psutil.virtual_memory().total, *(limit for limit, _ in _groups(root))])


def _groups(root: Path) -> Iterator[tuple[int, int]]:
    """Limits of the control groups that this process is in, each with what is used of it."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return  # not Linux
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            yield from _limits(root / "sys/fs/cgroup", path, "memory.max", "memory.current", "")
        elif "memory" in controllers.split(","):
            names = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"
            yield from _limits(root / "sys/fs/cgroup/memory", path, *names)


def _limits(mount: Path, path: str, limit: str, usage: str, prefix: str) -> Iterator[tuple[int, int]]:
    """Those of a group and of all around it. In a container its own group may be what is mounted."""
    group = mount / path.lstrip("/")
    for place in (group, *group.parents):
        most, used = _number(place / limit), _number(place / usage)
        if most is not None and used is not None and most < _UNLIMITED:
            yield most, max(0, used - _cached(place / "memory.stat", prefix))
        if place == mount:
            return


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None  # "max"


def _cached(file: Path, prefix: str) -> int:
    """Bytes of files in memory: the system gives them back when they are asked for."""
    try:
        pairs = [line.split() for line in file.read_text().splitlines()]
    except OSError:
        return 0
    wanted = (f"{prefix}inactive_file", f"{prefix}active_file")
    return sum(int(pair[1]) for pair in pairs if len(pair) == 2 and pair[0] in wanted and pair[1].isdigit())
