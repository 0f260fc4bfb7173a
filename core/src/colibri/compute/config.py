"""Reading a model's configuration: every value is checked as it is read, and every error names the file and the key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from ..errors import CheckpointError
from .checkpoint import Checkpoint

T = TypeVar("T")


class Config:
    """The keys of config.json. A null counts as absent. `names` holds what the file calls keys that it has by other names,
    `made` the values of those that it says in other words."""

    def __init__(
        self,
        values: Mapping[str, Any],
        file: Path,
        prefix: str = "",
        names: Mapping[str, str] | None = None,
        made: Mapping[str, Any] | None = None,
    ) -> None:
        self.values, self.file, self.prefix, self.names, self.made = values, file, prefix, names or {}, made or {}

    @classmethod
    def of(cls, checkpoint: Checkpoint, names: Mapping[str, str] | None = None) -> Config:
        """The configuration of a checkpoint of either format, by the keys of config.json. `names`: what GGUF files call
        keys of this family's, besides those of gguf_names.KEYS."""
        if checkpoint.format == "gguf":
            from .gguf_names import gguf_config  # it builds on this module

            return gguf_config(checkpoint, names or {})
        return cls(checkpoint.config, checkpoint.path / "config.json")

    def given(self, **made: Any) -> Config:
        """The same with these values, which the file says in other words; None takes one away."""
        return Config(self.values, self.file, self.prefix, self.names, {**self.made, **made})

    def error(self, key: str, reason: str) -> CheckpointError:
        """An error about one key."""
        return CheckpointError(f"{self.prefix}{self.names.get(key, key)} {reason}", file=self.file)

    def get(self, key: str) -> Any:
        """The raw value, or None."""
        return self.made[key] if key in self.made else self.values.get(self.prefix + self.names.get(key, key))

    def spelling(self, *keys: str) -> str:
        """Of several names of one value the first that is there, or else the first."""
        return next((key for key in keys if self.get(key) is not None), keys[0])

    def size(self, key: str, default: int | None = None, *, least: int = 1, most: int = 1 << 31) -> int:
        """A whole number from `least` to `most`; required without a default."""
        value = self._required(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.error(key, f"must be a whole number from {least} to {most}, not {_short(value)}")
        return value

    def number(self, key: str, default: float | None = None, *, above: float = 0.0, below: float = 1e30) -> float:
        """A number between `above` and `below`, by default a positive one; required without a default."""
        value = self._required(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not above < value < below:
            wanted = "a positive number" if above == 0 else f"a number between {above:g} and {below:g}"
            raise self.error(key, f"must be {wanted}, not {_short(value)}")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """true or false."""
        value = self._required(key, default)
        if not isinstance(value, bool):
            raise self.error(key, f"must be true or false, not {_short(value)}")
        return value

    def word(self, key: str, default: str | None = None) -> str:
        """A string; required without a default."""
        value = self._required(key, default)
        if not isinstance(value, str):
            raise self.error(key, f"must be a string, not {_short(value)}")
        return value

    def only(self, key: str, word: str) -> None:
        """Refuse any other word than the one that can be computed; absent, it is taken for that."""
        given = self.word(key, word)
        if given != word:
            raise self.error(key, f"is {given[:32]!r}, this family computes {word}")

    def without(self, key: str) -> None:
        """Refuse what a flag asks for and the family does not have."""
        if self.flag(key, False):
            raise self.error(key, "is true, this family has none")

    def choices(self, key: str, count: int, meanings: Mapping[Any, T]) -> tuple[T, ...] | None:
        """What a list of `count` strings or whole numbers means, such as one for each layer; None if absent."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != count:
            raise self.error(key, f"must be a list of {count} values, not {_short(value)}")
        for item in value:
            if isinstance(item, bool) or not isinstance(item, str | int) or item not in meanings:
                known = ", ".join(str(word) for word in meanings)
                raise self.error(key, f"has {_short(item)} in it; {known} can be computed")
        return tuple(meanings[item] for item in value)

    def split(self, key: str, parts: int, whole_key: str, whole: int) -> int:
        """whole / parts, as the two keys gave them: the parts must divide the whole."""
        if whole % parts:
            raise self.error(key, f"is {parts}, which does not divide {self.names.get(whole_key, whole_key)}, {whole}")
        return whole // parts

    def part(self, key: str) -> Config | None:
        """An object inside the configuration, with keys named `key.x` in errors; None if absent."""
        value = self.get(key)
        if value is None or isinstance(value, Config):
            return value
        if not isinstance(value, dict):
            raise self.error(key, f"must be an object, not {_short(value)}")
        prefix = f"{self.prefix}{key}."
        return Config({prefix + name: item for name, item in value.items()}, self.file, prefix)

    def text(self) -> Config:
        """The part about the language model: `text_config` where a model has other parts too, else all of it."""
        return self.part("text_config") or self

    def _required(self, key: str, default: Any) -> Any:
        value = self.get(key)
        if value is not None:
            return value
        if default is None:
            raise self.error(key, "is missing")
        return default


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def parse_json(data: bytes, file: Path, *, strict: bool = False) -> dict[str, Any]:
    """A JSON object from an untrusted file. `strict` also refuses repeated keys and NaN.

    Raises CheckpointError for anything that is not one JSON object in UTF-8.
    """
    try:
        value = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_distinct if strict else None,
            parse_constant=_no_constant if strict else None,
        )
    except UnicodeDecodeError:
        raise CheckpointError("is not JSON: not UTF-8 text", file=file) from None
    except RecursionError:
        raise CheckpointError("is not usable JSON: nested too deeply", file=file) from None
    except ValueError as error:
        raise CheckpointError(f"is not valid JSON: {error}", file=file) from None
    if not isinstance(value, dict):
        raise CheckpointError("must hold a JSON object", file=file)
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"{_short(key)} appears twice")
            seen.add(key)
    return found


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not a JSON number")
