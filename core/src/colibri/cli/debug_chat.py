"""The work of `colibri debug render` and `colibri debug parse`: one JSON line in, one JSON line out."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ..api.openai.cases import Case, parse_case, render_case
from ..chat.jsontext import dumps
from ..chat.tokenizer import Tokenizer
from ..compute.checkpoint import Checkpoint, open_checkpoint
from ..errors import BadRequest, CheckpointError, ColibriError
from ..family import Family, TokenizerSpec
from ..plugins import Plugins

Write = Callable[[str], object]


def render(
    plugins: Plugins, variant_name: str, tokenizer_file: str | None, lines: Iterable[str | bytes], write: Write
) -> int:
    """A chat request per line -> `text`, `pieces` and, with a tokenizer, `ids`; see `render_case`."""
    family, variant = plugins.variant(variant_name)
    tokenizer = _tokenizer(family, tokenizer_file)
    return _each(family, lines, write, lambda case: render_case(family, variant, case, tokenizer))


def parse(
    plugins: Plugins, variant_name: str, tokenizer_file: str | None, lines: Iterable[str | bytes], write: Write
) -> int:
    """An output per line -> `content`, `reasoning`, `tool_calls` and `finish`; see `parse_case`."""
    family, variant = plugins.variant(variant_name)
    tokenizer = _tokenizer(family, tokenizer_file)
    return _each(family, lines, write, lambda case: parse_case(family, variant, case, tokenizer))


def _each(family: Family, lines: Iterable[str | bytes], write: Write, answer: Callable[[Case], dict[str, Any]]) -> int:
    """Answer every line; a line that cannot be answered says why, and the next is read."""
    for text in lines:
        if not text.strip():
            continue
        try:
            line = json.loads(text)
        except (ValueError, RecursionError) as error:
            write(dumps({"error": f"the line cannot be read: {error}"}))
            continue
        try:
            if not isinstance(line, dict):
                raise BadRequest("the line must be a JSON object")
            reply = answer(line)
        except ColibriError as error:
            reply = {"error": str(error)}
        except Exception as error:  # a mistake of the family's author, who is the one to read this
            if os.environ.get("COLI_DEBUG"):
                raise
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            reply = {"error": f"family {family.name} failed: {reason} (COLI_DEBUG=1 shows where)"}
        write(dumps(reply))
    return 0


def _tokenizer(family: Family, file: str | None) -> Tokenizer | None:
    """The tokenizer in `file`, as the family would read it beside a model."""
    if file is None:
        return None
    path = Path(file)
    if path.suffix == ".gguf":
        return Tokenizer.load(family.tokenizer(open_checkpoint(path)))
    try:
        spec = family.tokenizer(_beside(path))
    except CheckpointError:
        spec = _renamed(family, path)
    return Tokenizer.load(replace(spec, file=file))


def _beside(file: Path) -> Checkpoint:
    return Checkpoint(file.parent, "safetensors", {}, {}, {})


def _renamed(family: Family, file: Path) -> TokenizerSpec:
    """What the family says about a file that has another name than beside a model."""
    with tempfile.TemporaryDirectory() as folder:
        usual = Path(folder, "tokenizer.json")
        try:
            shutil.copyfile(file, usual)
        except OSError as error:
            raise CheckpointError(f"cannot be read: {error.strerror}", file=file) from None
        try:
            return family.tokenizer(_beside(usual))
        except CheckpointError:
            return TokenizerSpec(str(file))
