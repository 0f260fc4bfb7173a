"""The pytest plugin of the test kit, loaded by pytest wherever colibri is installed. It imports nothing of colibri until
a fixture is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ..plugins import Plugins

pytest.register_assert_rewrite("colibri.testing.conformance")


@pytest.fixture(scope="session")
def colibri_plugins() -> Plugins:
    """All installed family plugins, as the server would find them, broken ones included."""
    from ..plugins import load_plugins

    return load_plugins()
