"""The machine as /health tells of it."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

import psutil

from ..compute.memory import available, total


def hardware() -> dict[str, object]:
    """Cores and gigabytes; graphics cards are not used, so none is listed."""
    return {
        "cpu": _cpu(),
        "cores": psutil.cpu_count(logical=False) or psutil.cpu_count() or 1,
        "ram_total_gb": round(total() / 1e9, 1),
        "ram_avail_gb": round(available() / 1e9, 1),
        "gpus": 0,
        "vram_total_gb": 0.0,
    }


@cache
def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
