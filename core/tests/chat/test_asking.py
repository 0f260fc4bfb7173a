from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from colibri.chat.asking import ask
from colibri.errors import BadRequest, PluginError
from colibri.family import Stops

FAMILY: Any = SimpleNamespace(name="heron")
STOPS: Any = Stops()
OTHER: Any = ("<|end|>",)


def test_an_answer_is_handed_on() -> None:
    assert ask(FAMILY, lambda family: STOPS, Stops) is STOPS


def test_an_answer_of_another_kind_names_the_family() -> None:
    with pytest.raises(PluginError, match="family heron answers with tuple where Stops is due"):
        ask(FAMILY, lambda family: OTHER, Stops)


def test_a_mistake_names_the_family_and_a_refusal_passes() -> None:
    def fail(error: Exception) -> Any:
        raise error

    with pytest.raises(PluginError, match="family heron failed: KeyError: 'x'"):
        ask(FAMILY, lambda family: fail(KeyError("x")), Stops)
    with pytest.raises(BadRequest, match="no tools here"):
        ask(FAMILY, lambda family: fail(BadRequest("no tools here")), Stops)
