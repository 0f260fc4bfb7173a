"""Asking a family something: its own mistakes become one line that names it, wherever they happen."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ..errors import ColibriError, PluginError
from ..family import Family

T = TypeVar("T")


def ask(family: Family, question: Callable[[Family], T], kind: type[T]) -> T:
    """What the family answers, which must be a `kind`. Raises PluginError for anything else; what the family refuses by
    raising a ColibriError passes."""
    try:
        answer = question(family)
    except ColibriError:
        raise
    except Exception as error:
        raise PluginError(f"family {family.name} failed: {type(error).__name__}: {error}") from error
    if not isinstance(answer, kind):
        raise PluginError(f"family {family.name} answers with {type(answer).__name__} where {kind.__name__} is due")
    return answer
