"""`colibri doctor`: what this machine has, and what stands in the way of serving."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Iterator
from importlib import metadata
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, to_builtins

from ..errors import ColibriError
from ..settings import Settings, add_flags, load_settings
from .commands import Commands

if TYPE_CHECKING:
    from ..compute.checkpoint import Checkpoint
    from ..family import Family

GIB = 1 << 30


class Finding(Struct, frozen=True):
    """One line of the report. A `problem` is something to repair, a `note` something to know."""

    topic: str
    verdict: Literal["ok", "note", "problem"]
    text: str


def add(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add("doctor", run, "check this machine, the installation and, if given, a model")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Print the findings; the status is 1 if there is a problem."""
    found = list(findings(args))
    if args.json:
        print(json.dumps(to_builtins(found), indent=2))
    else:
        wide = max(len(finding.topic) for finding in found)
        marks = {"ok": "ok     ", "note": "note   ", "problem": "PROBLEM"}
        for finding in found:
            print(f"{marks[finding.verdict]}  {finding.topic:{wide}}  {finding.text}")
    return 1 if any(finding.verdict == "problem" for finding in found) else 0


def findings(args: argparse.Namespace) -> Iterator[Finding]:
    """Everything looked at, in the order it is needed."""
    yield _python()
    yield Finding("platform", "ok", f"{platform.system()} {platform.release()}, {platform.machine()}")
    yield _native()
    yield from _memory()
    yield from _packages()
    try:
        resolved = load_settings(vars(args), os.environ)
    except ColibriError as error:
        yield Finding("settings", "problem", str(error))
        return
    set_ = [f"{name} ({source})" for name, source in resolved.sources.items() if source != "default"]
    yield Finding("settings", "ok", ", ".join(set_) or "all defaults")
    for warning in resolved.warnings:
        yield Finding("settings", "note", warning)
    yield from _plugins_and_model(resolved.settings)


def _python() -> Finding:
    version = f"{platform.python_implementation()} {platform.python_version()} at {sys.executable}"
    return Finding("python", "ok" if sys.version_info >= (3, 10) else "problem", version)


def _native() -> Finding:
    try:
        from .. import _native
    except ImportError as error:
        return Finding("runtime", "problem", f"the native runtime cannot be loaded: {error}; install colibri again")
    return Finding("runtime", "ok", f"{_native.build_info()}; this CPU runs {', '.join(_native.isas())}")


def _memory() -> Iterator[Finding]:
    import psutil

    memory = psutil.virtual_memory()
    cores = psutil.cpu_count(logical=False) or psutil.cpu_count() or 1
    yield Finding("cpu", "ok", f"{cores} physical cores, {psutil.cpu_count() or cores} logical")
    text = f"{memory.available / GIB:.1f} GiB free of {memory.total / GIB:.1f} GiB"
    yield Finding("memory", "ok" if memory.available > GIB else "note", text)


def _packages() -> Iterator[Finding]:
    """Whether what core needs is there, in the versions it needs as far as their presence tells."""
    try:
        requirements = metadata.requires("colibri") or []
    except metadata.PackageNotFoundError:
        yield Finding("packages", "note", "colibri runs from its sources, without being installed")
        return
    missing = []
    for line in requirements:
        requirement, _, marker = line.partition(";")
        name = requirement.split(">")[0].split("[")[0].strip()
        if "extra" in marker or ("win32" in marker and sys.platform == "win32"):
            continue
        try:
            metadata.version(name)
        except metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        yield Finding("packages", "problem", f"missing: {', '.join(missing)}; run pip install {' '.join(missing)}")
    else:
        yield Finding("packages", "ok", "all there")


def _plugins_and_model(settings: Settings) -> Iterator[Finding]:
    from ..plugins import load_plugins

    try:
        plugins = load_plugins(settings)
    except ColibriError as error:
        yield Finding("plugins", "problem", str(error))
        return
    families = [f"{row.name} ({row.origin.origin})" for row in plugins.families()]
    if families:
        yield Finding("plugins", "ok", ", ".join(families))
    else:
        yield Finding("plugins", "problem", "no family plugin is installed: pip install colibri-<family>")
    for row in plugins.broken():
        yield Finding("plugins", "problem", f"{row.name} ({row.origin}): {row.error}")
    if settings.model is None:
        yield Finding("model", "note", "none given: --model PATH has one checked")
        return
    from ..compute.checkpoint import open_checkpoint

    try:
        checkpoint = open_checkpoint(settings.model)
        family, variant = plugins.family_for(checkpoint)
    except ColibriError as error:
        yield Finding("model", "problem", str(error))
        return
    size = sum(tensor.nbytes for tensor in checkpoint.tensors.values())
    text = f"{variant.title}, {checkpoint.format}, {len(checkpoint.tensors)} tensors, {size / GIB:.2f} GiB"
    yield Finding("model", "ok", text)
    yield from _conversations(settings, family, checkpoint)


def _conversations(settings: Settings, family: Family, checkpoint: Checkpoint) -> Iterator[Finding]:
    """The KV files that a server with these settings would find."""
    from ..compute.identity import identity
    from ..compute.load import declare
    from ..engine.kv_folder import Folder, folder_of

    if not settings.kv_save:
        yield Finding("conversations", "note", "are not saved (kv_save)")
        return
    try:
        path = folder_of(settings)
        folder = Folder(path, identity(*declare(family, checkpoint)))
    except (ColibriError, OSError, RuntimeError) as error:
        yield Finding("conversations", "note", f"can't be looked for: {error}")
        return
    usable = 0
    for slot in range(settings.kv_slots):
        for file, reason in folder.look(slot):
            usable += not reason
            if reason:
                yield Finding("conversations", "note", f"{file} is ignored: it {reason}")
    yield Finding("conversations", "ok", f"{usable} saved in {path}")
