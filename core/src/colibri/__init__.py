"""Colibri: serve frontier mixture-of-experts models on the machine you have."""

from pluggy import HookimplMarker

__version__ = "1.0.0"

#: Marks a plugin's hook implementations.
hookimpl = HookimplMarker("colibri")
