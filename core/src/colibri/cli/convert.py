"""`colibri convert`: a published checkpoint to a model whose weights lie as the kernels read them."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from ..errors import ColibriError, SettingError
from ..settings import add_flags
from .commands import Commands, plugins_of, settings_of

GB = 10**9


def add(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add("convert", run, "convert a model to colibri's own format: smaller and faster, experts in records")
    parser.add_argument(
        "--out", metavar="FOLDER", required=True, help="a new folder, or one whose conversion was broken off"
    )
    words = ("int8", "int4", "keep")
    parser.add_argument(
        "--dense", choices=words, default="int8", help="how matrices outside the experts are stored (default: int8)"
    )
    parser.add_argument("--experts", choices=words, default="int4", help="how experts are stored (default: int4)")
    parser.add_argument("--keep-free", type=float, default=5.0, metavar="GB", help="disk space that stays free (default: 5)")
    add_flags(parser, ("model", "threads", "plugin", "plugins", "disable_plugins"))


def run(args: argparse.Namespace) -> int:
    """Convert, verify and report."""
    from ..compute.checkpoint import open_checkpoint
    from ..compute.convert import Choice, convert, verify

    settings = settings_of(args)
    if settings.model is None:
        raise SettingError("--model: name the checkpoint to convert")
    if not 0 <= args.keep_free < 1e6:
        raise SettingError("--keep-free must be a number of GB from 0 on")
    checkpoint = open_checkpoint(settings.model)
    target = Path(args.out)
    source = checkpoint.path if checkpoint.path.is_dir() else checkpoint.path.parent
    if target.resolve() == source.resolve():
        raise ColibriError(f"{target}: is the checkpoint itself; give another folder")
    family, _ = plugins_of(settings).family_for(checkpoint)
    clock = _Clock()
    conversion = convert(
        family,
        checkpoint,
        target,
        Choice(args.dense, args.experts),
        threads=settings.threads or _threads(),
        keep_free=int(args.keep_free * GB),
        progress=clock.show,
    )
    clock.end()
    verify(target, conversion)
    losses = sorted(((share, name) for written in conversion.written for name, share in written.lost.items()), reverse=True)
    size = sum((target / written.file).stat().st_size for written in conversion.written)
    print(f"{target}: {size / GB:.2f} GB in {len(conversion.written)} files, read again and as written")
    if losses:
        mean = sum(share for share, _ in losses) / len(losses)
        print(f"error of packed weights: {mean:.2%} of their size on average; the largest:")
        for share, name in losses[:5]:
            print(f"  {share:.2%}  {name}")
    print(f"serve it: colibri serve --model {target}")
    return 0


def _threads() -> int:
    import psutil

    return psutil.cpu_count(logical=False) or 1


class _Clock:
    """Progress and the time left, on one line of a terminal, or now and then in a log."""

    def __init__(self) -> None:
        self._begun = self._told = time.monotonic()
        self._first: int | None = None
        self._line = sys.stderr.isatty()

    def show(self, done: int, total: int) -> None:
        """`done` bytes of `total` are dealt with. What was there before the start tells nothing of the speed."""
        now = time.monotonic()
        self._first = done if self._first is None else self._first
        if now - self._told < (0.2 if self._line else 10):
            return
        self._told = now
        speed = (done - self._first) / max(now - self._begun, 1e-3)
        left = f", {_minutes((total - done) / speed)} left" if speed > 0 else ""
        text = f"{done / max(total, 1):4.0%} of {total / GB:.1f} GB, {speed / 1e6:.0f} MB/s{left}"
        print(f"\r{text:70}" if self._line else text, end="" if self._line else "\n", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Leave the line."""
        if self._line:
            print(f"\r{'':70}\r", end="", file=sys.stderr)


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
