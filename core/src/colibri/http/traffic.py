"""What is going on in a server: its live connections and the answers under way."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .connection import Connection


class Traffic:
    """Both sets are kept by the connections themselves; a quiet server has them empty."""

    def __init__(self) -> None:
        self.connections: set[Connection] = set()
        self.answers: set[asyncio.Task[None]] = set()
