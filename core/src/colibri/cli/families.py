"""`colibri families`: which plugins are installed, what they serve, and which are broken and why."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ..serve.claims import CLAIMS, in_words
from ..settings import add_flags
from .commands import Commands, settings_of

if TYPE_CHECKING:
    from ..discovery import PluginRow
    from ..family import Capabilities
    from ..plugins import Plugins

#: Columns of the table for READMEs, and the claims that each of them shows.
COLUMNS = {
    "tools": ("tools", "tools by prompt"),
    "tool choice": ("tool choice",),
    "strict tools": ("strict tools",),
    "thinking": ("thinking",),
    "preserved thinking": ("preserved thinking",),
    "continuation": ("continuation",),
    "also": ("developer turns", "logprobs", "drafts", "grammar", "decide"),
}


def add(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add("families", run, "list the model families installed and what they support")
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="print JSON")
    shape.add_argument("--markdown", action="store_true", help="print the table of the README")
    add_flags(parser, ("plugin", "plugins", "disable_plugins"))


def run(args: argparse.Namespace) -> int:
    """Print a table, JSON, or the table of the README."""
    from ..plugins import load_plugins

    plugins = load_plugins(settings_of(args))
    if args.markdown:
        print(as_markdown(plugins))
    else:
        print(json.dumps(as_json(plugins), indent=2) if args.json else as_table(plugins))
    return 0


def as_json(plugins: Plugins) -> dict[str, Any]:
    """Families with their variants and capabilities, and broken plugins with their reasons."""
    return {
        "families": [
            {
                "name": row.name,
                **_origin(row.origin),
                "variants": [msgspec.to_builtins(variant) for variant in row.variants],
            }
            for row in plugins.families()
        ],
        "broken": [
            {
                "plugin": row.name,
                "distribution": row.distribution,
                "version": row.version,
                "file": row.file,
                "reason": row.error,
            }
            for row in plugins.broken()
        ],
    }


def _origin(row: PluginRow) -> dict[str, Any]:
    return {"plugin": row.name, "distribution": row.distribution, "version": row.version, "file": row.file}


def as_table(plugins: Plugins) -> str:
    """One line a variant."""
    lines = [("FAMILY", "VARIANT", "MODEL", "FROM", "SUPPORTS")]
    for row in plugins.families():
        for variant in row.variants:
            lines.append((row.name, variant.name, variant.title, row.origin.origin, in_words(variant.capabilities)))
    parts = (
        ["\n".join(_aligned(lines))] if len(lines) > 1 else ["No family plugin is installed: pip install colibri-<family>"]
    )
    broken = [(row.name, row.origin, row.error or "") for row in plugins.broken()]
    if broken:
        parts.append("\n".join(["Broken:", *(f"  {line}" for line in _aligned(broken))]))
    return "\n\n".join(parts)


def as_markdown(plugins: Plugins) -> str:
    """One row a variant, for a README: what may be claimed has a column each, the rarest things one together."""
    lines: list[tuple[str, ...]] = [("model", "variant", "plugin", "inputs", *COLUMNS)]
    lines.append(("---",) * len(lines[0]))
    for row in plugins.families():
        plugin = row.origin.distribution or row.name
        for variant in row.variants:
            inputs = ", ".join(variant.capabilities.inputs)
            cells = (_cell(heading, variant.capabilities) for heading in COLUMNS)
            lines.append((variant.title, f"`{variant.name}`", f"`{plugin}`", inputs, *cells))
    return "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines)


def _cell(heading: str, capabilities: Capabilities) -> str:
    said = (
        claim.how(capabilities) or "yes" if claim.label == heading else claim.said(capabilities)
        for claim in CLAIMS
        if claim.label in COLUMNS[heading] and claim.how(capabilities) is not None
    )
    return ", ".join(filter(None, said))


def _aligned(lines: Sequence[tuple[str, ...]]) -> list[str]:
    """Columns as wide as their widest cell, the last one ragged."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]) - 1)]
    return ["  ".join([*(f"{cell:{width}}" for cell, width in zip(line, widths, strict=False)), line[-1]]) for line in lines]
