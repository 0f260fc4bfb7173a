"""Versions a plugin may ask for. How plugins are found is tested through the loader, in test_plugins.py."""

from __future__ import annotations

import pytest

from colibri.discovery import _satisfies, _unsuited


@pytest.mark.parametrize(
    ("clause", "fits"),
    [
        (">=1.0", True), (">=1.2.3", True), (">=1.3", False), (">1.2.3", False), ("<2", True), ("<1.2.3", False),
        ("<=1.2.3", True), ("==1.2.3", True), ("==1.2", False), ("==1.2.*", True), ("==1.3.*", False), ("!=1.2.3", False),
        ("!=1.2.*", False), ("~=1.2", True), ("~=1.2.0", True), ("~=1.3", False), ("~=1.1.0", False), ("===1.2.3", True),
        ("banana", True),
    ],
)  # fmt: skip
def test_version_clauses(clause: str, fits: bool) -> None:
    assert _satisfies("1.2.3", clause) is fits


def test_requirements_that_say_nothing_about_core() -> None:
    lines = [
        "colibri-tools>=9",
        "numpy>=99",
        "colibri>=9; extra == 'later'",
        "colibri",
        "colibri[grammar]>=1.0",
        "colibri @ file:///x",
    ]
    assert _unsuited(lines) is None
    assert _unsuited(["Colibri[grammar]>=9"]) == "it needs colibri >=9, and this is colibri 1.0.0"
