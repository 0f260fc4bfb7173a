"""What holds for every test in the repository."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

import colibri

# No deadlines: a test that fails when the machine is busy tells nothing about the code.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("fuzz", settings.get_profile("default"), max_examples=10_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_report_header() -> str:
    return f"colibri {colibri.__version__} from {os.path.dirname(colibri.__file__)}"
