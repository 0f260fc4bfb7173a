"""Where plugins may come from: entry points of installed distributions, and files."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable, Iterable
from functools import partial
from importlib import metadata
from pathlib import Path
from types import ModuleType

from msgspec import Struct

from . import __version__
from .errors import PluginError, SettingError
from .settings import Settings

GROUP = "colibri"


class PluginRow(Struct, frozen=True):
    """One plugin as `colibri families` shows it. `error` says why it is not in use.

    It comes from a `distribution` of some `version`, or from a `file`; one from a file is named for it.
    """

    name: str
    distribution: str | None = None
    version: str | None = None
    file: str | None = None
    families: tuple[str, ...] = ()
    error: str | None = None

    @property
    def origin(self) -> str:
        """Where it comes from, in words: `colibri-x 1.0`, or the file's path."""
        return f"{self.distribution} {self.version}" if self.distribution else self.file or self.name


#: A plugin that was found, and how to import it. Its row has an error if it must not even be imported.
Candidate = tuple[PluginRow, Callable[[], object]]


def candidates(settings: Settings) -> list[Candidate]:
    """All plugins that `settings` allows, none imported yet. Raises SettingError for one that is named but not installed."""
    installed = _installed(settings)
    return [*installed, *_files(settings.plugin, (row.name for row, _ in installed))]


def distributions() -> set[str]:
    """The names of all distributions that bring a plugin, whether it is in use or not."""
    return {entry.dist.name for entry in metadata.entry_points(group=GROUP) if entry.dist}


def _installed(settings: Settings) -> list[Candidate]:
    """The entry points of group `colibri`, checked for what can be known without importing them."""
    entries = [(entry, {entry.name, entry.dist.name if entry.dist else ""}) for entry in metadata.entry_points(group=GROUP)]
    for name in settings.plugins or ():
        if not any(name in names for _, names in entries):
            raise SettingError(f"no plugin {name!r} is installed (flag --only-plugin, variable COLI_PLUGINS)")
    found: dict[str, list[metadata.EntryPoint]] = {}
    for entry, names in entries:
        if (settings.plugins is None or names & set(settings.plugins)) and not names & set(settings.disable_plugins):
            found.setdefault(entry.name, []).append(entry)
    candidates: list[Candidate] = []
    for name, namesakes in sorted(found.items()):
        owners = " and ".join(sorted(entry.dist.name for entry in namesakes if entry.dist))
        clash = f"its name is used by both {owners}; uninstall one of them" if len(namesakes) > 1 else None
        for entry in namesakes:
            dist = entry.dist
            error = clash or (_unsuited(dist.requires or []) if dist else None)
            row = PluginRow(name, dist.name if dist else None, dist.version if dist else None, error=error)
            candidates.append((row, entry.load))
    return candidates


def _files(paths: Iterable[str], taken: Iterable[str]) -> list[Candidate]:
    """The plugins of `--plugin`. Their names must differ from those taken and from each other."""
    names = set(taken)
    candidates: list[Candidate] = []
    for path in paths:
        name = Path(path).stem
        clash = f"another plugin is named {name!r}; rename the file" if name in names else None
        names.add(name)
        candidates.append((PluginRow(name, file=path, error=clash), partial(_module_of, Path(path))))
    return candidates


def _module_of(path: Path) -> ModuleType:
    """The module in a file, under a name that cannot meet an installed one."""
    if not path.is_file():
        raise PluginError("no such file")
    name = "colibri_plugin_file_" + re.sub(r"\W", "_", path.stem)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PluginError("not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _unsuited(requirements: Iterable[str]) -> str | None:
    """Why a distribution with these Requires-Dist lines cannot be used with this core, or None."""
    for line in requirements:
        requirement, _, marker = line.partition(";")
        match = re.match(r"\s*([A-Za-z0-9._-]+)\s*(?:\[[^\]]*\])?\s*\(?([^()]*)\)?\s*$", requirement)
        if match is None or match[1].lower() != GROUP or "extra" in marker:
            continue
        for part in filter(None, (part.strip() for part in match[2].split(","))):
            if not _satisfies(__version__, part):
                return f"it needs colibri {match[2].strip()}, and this is colibri {__version__}"
    return None


def _satisfies(version: str, clause: str) -> bool:
    """Whether a version meets one clause such as `>=1.0`, by release numbers; unreadable clauses are pip's affair."""
    match = re.match(r"(~=|===?|!=|<=|>=|<|>)\s*(\d+(?:\.\d+)*)(\.\*)?", clause)
    if match is None:
        return True
    ours, theirs = _release(version), _release(match[2])
    size = max(len(ours), len(theirs))
    a, b = ours + (0,) * (size - len(ours)), theirs + (0,) * (size - len(theirs))
    same = ours[: len(theirs)] == theirs if match[3] else a == b
    return {
        "==": same,
        "===": same,
        "!=": not same,
        "<=": a <= b,
        ">=": a >= b,
        "<": a < b,
        ">": a > b,
        "~=": a >= b and a[: len(theirs) - 1] == theirs[:-1],
    }[match[1]]


def _release(version: str) -> tuple[int, ...]:
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else (0,)
