"""Every setting of the server and the commands, in one frozen Struct."""

from __future__ import annotations

from msgspec import Struct


class Settings(Struct, frozen=True, kw_only=True):
    """All settings, resolved. Field `x_y` is flag `--x-y`, variable `COLI_X_Y` and key `x_y` of colibri.toml."""

    model: str | None = None
    model_id: str | None = None
    plugin: tuple[str, ...] = ()
    host: str = "127.0.0.1"
    port: int = 8000
    api_key: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    ctx: int = 0  # 0: the smaller of the model's own limit and 4096
    kv_slots: int = 1
    max_tokens: int = 16384
    max_queue: int = 8
    queue_timeout: float = 300.0
    threads: int = 0  # 0: all physical cores
    isa: str = ""  # "": the best this CPU has
    prefill_chunk: int = 256
    temp: float | None = None  # None: the model's recommendation
    continue_assistant: bool = True
    think: bool | None = None
    tool_fallback: bool = False
    max_body: int = 32 << 20
