"""Real worker processes that end, well or badly, and those that come after them."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from colibri.engine import process
from colibri.engine.client import LocalEngine
from colibri.engine.frames import Accept, Submit, Tokens
from colibri.engine.kv_files import owner
from colibri.family import Sampling
from colibri.settings import Settings
from colibri.testing.checkpoints import seeded_weights, write_checkpoint
from colibri.testing.runtime import LOAD, alone

PLUGIN = str(Path(__file__).parent.parent / "serve" / "tiny_family.py")
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]


def tiny(folder: Path, seed: int = 1) -> Settings:
    """A model that is computed natively."""
    shapes = {"embed": (40, 16), "q": (16, 16), "k": (16, 16), "v": (16, 16), "o": (16, 16), "head": (40, 16)}
    write_checkpoint(folder, {"model_type": "tiny"}, seeded_weights(shapes, seed))
    return Settings(model=str(folder), plugin=(PLUGIN,), plugins=(), threads=1, kv_slots=2, prefill_chunk=4)


def scripted(folder: Path, *, slots: int = 2, **script: Any) -> Settings:
    model = msgspec.json.encode({"identity": "a model", **script}).decode()
    return Settings(model=model, kv_dir=str(folder), kv_slots=slots, prefill_chunk=4)


@asynccontextmanager
async def engine(settings: Settings, load: str | None = None) -> AsyncIterator[LocalEngine]:
    it = LocalEngine(settings, load=load, pause=0.01)
    await it.start()
    await ready(it)
    try:
        yield it
    finally:
        await it.close()


async def ready(it: LocalEngine) -> None:
    while it.status.state != "ready":
        assert it.status.state != "failed", it.status
        await asyncio.sleep(0.002)


async def ask(it: LocalEngine, id: int, ids: list[int], count: int, slot: int = 0) -> tuple[list[int], int]:
    """The answer, and how much of the prompt was cached."""
    frames = [frame async for frame in it.submit(Submit(id, ids, count, Sampling(), slot=slot))]
    [cached] = [frame.cached for frame in frames if isinstance(frame, Accept)]
    return [token for frame in frames if isinstance(frame, Tokens) for token in frame.ids], cached


async def until(true: Callable[[], bool]) -> None:
    while not true():  # noqa: ASYNC110 - files and processes are what is waited for
        await asyncio.sleep(0.002)


def saved_in(folder: Path) -> list[Path]:
    return sorted(folder.glob(".coli_kv*"))


async def crash(it: LocalEngine) -> None:
    """Kill the worker and wait for the next one."""
    restarts = it.status.restarts
    assert it.pid is not None
    os.kill(it.pid, signal.SIGKILL)
    await until(lambda: it.status.restarts > restarts)
    await ready(it)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 120))


def test_a_conversation_survives_the_worker_and_the_server(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Its tokens and its cache are those of a server that never ended; the gateway knows where it is."""

    async def test() -> None:
        settings = tiny(tmp_path / "model")
        unbroken = msgspec.structs.replace(settings, kv_save=False)
        async with engine(unbroken) as it:
            first, _ = await ask(it, 1, PROMPT, 6)
            said = [*PROMPT, *first, 7]
            second, cached = await ask(it, 2, said, 6)
            third = await ask(it, 3, [*said, *second, 8], 6)
        assert cached == len(said) - 2
        assert saved_in(tmp_path / "model") == []

        file = tmp_path / "model" / ".coli_kv.1"
        async with engine(settings) as it:
            assert (await ask(it, 1, PROMPT, 6, slot=1))[0] == first
            await until(file.exists)
            await crash(it)
            assert it.nearest(said, [0, 1]) == 1
            assert await ask(it, 2, said, 6, slot=1) == (second, cached)
        async with engine(settings) as it:
            assert it.nearest(said, [0, 1]) == 1
            assert await ask(it, 3, [*said, *second, 8], 6, slot=1) == third
        size = file.stat().st_size

        async with engine(msgspec.structs.replace(settings, kv_slots=1)) as it:  # its slot is not there
            assert (await ask(it, 1, said, 6))[1] == 0
        assert file.stat().st_size == size
        tiny(tmp_path / "model", seed=2)
        async with engine(settings) as it:  # its weights are others
            assert (await ask(it, 1, said, 6, slot=1))[1] == 0
        assert file.stat().st_size == size

    run(test)
    file, other = (tmp_path / "model" / name for name in (".coli_kv.1", ".coli_kv"))
    foreign = "is ignored: it belongs to another model, or to this one before its files were changed"
    assert capfd.readouterr().err.splitlines() == [
        f"colibri engine: slot 1 goes on with 13 tokens from {file}",
        f"colibri engine: slot 1 goes on with 20 tokens from {file}",
        f"colibri engine: {file} is ignored: the server has slots 0 to 0 (see --kv-slots)",
        f"colibri engine: {other} {foreign}",
        f"colibri engine: {file} {foreign}",
    ]


@pytest.mark.parametrize("rounding", ["f16", "q8"])
def test_rounded_files_go_on_as_well(rounding: str, tmp_path: Path) -> None:
    async def test() -> None:
        settings = msgspec.structs.replace(tiny(tmp_path / "model"), kv_disk=rounding)
        async with engine(settings) as it:
            first, _ = await ask(it, 1, PROMPT, 6)
        async with engine(settings) as it:
            again, cached = await ask(it, 2, [*PROMPT, *first, 7], 6)
        assert cached == 13
        assert len(again) == 6

    run(test)


def test_a_kill_at_any_moment_harms_nothing(tmp_path: Path) -> None:
    """Turns with kills at random moments, while files are being written as well: every answer is the right one."""

    async def test() -> None:
        dice = random.Random(1)
        cached = 0
        async with engine(scripted(tmp_path, context=512), LOAD) as it:
            said = PROMPT
            for id in range(12):
                tokens, kept = await ask(it, id, said, 8)
                assert tokens == alone(said, 8)
                cached += kept
                said = [*said, *tokens, id]
                await asyncio.sleep(dice.choice([0, 0.001, 0.002, 0.005, 0.05]))
                await crash(it)
                assert all(owner(path) == "a model" for path in saved_in(tmp_path) if path.suffix != ".tmp")
        assert cached > 0

    run(test)


def test_a_server_that_stops_saves_what_is_unfinished(tmp_path: Path) -> None:
    async def test() -> None:
        async with engine(scripted(tmp_path, step=0.01, context=512), LOAD) as it:
            stream = it.submit(Submit(1, PROMPT, 400, Sampling(), slot=1))
            count = 0
            while count < 10:
                frame = await anext(stream)
                count += len(frame.ids) if isinstance(frame, Tokens) else 0
        async with engine(scripted(tmp_path, context=512), LOAD) as it:
            tokens, cached = await ask(it, 2, [*PROMPT, *alone(PROMPT, 10)], 5, slot=1)
            assert tokens == alone([*PROMPT, *alone(PROMPT, 10)], 5)
            assert cached == 17

    run(test)


def test_the_time_to_end_is_as_long_as_the_saving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker is not ended by force while it tells how far it is."""
    monkeypatch.setattr(process, "GRACE", 1.5)

    async def test() -> None:
        async with engine(scripted(tmp_path, slots=12, saving=0.2), LOAD) as it:
            for slot in range(12):
                await ask(it, slot, [slot, *PROMPT], 3, slot)
        assert len(saved_in(tmp_path)) == 12

    run(test)


def test_a_broken_file_does_not_keep_an_engine_from_starting(tmp_path: Path) -> None:
    async def test() -> None:
        async with engine(scripted(tmp_path), LOAD) as it:
            await ask(it, 1, PROMPT, 5)
        [path] = saved_in(tmp_path)
        whole = path.read_bytes()
        for data in (b"", whole[:30], bytes(len(whole)), whole[:-1]):
            path.write_bytes(data)
            async with engine(scripted(tmp_path), LOAD) as it:
                assert await ask(it, 1, PROMPT, 5) == (alone(PROMPT, 5), 0)
            if data != whole[:-1]:  # of which only this one is known to be the model's
                assert path.read_bytes() == data
                [_, other] = saved_in(tmp_path)
                other.unlink()
        assert path.read_bytes() == whole

    run(test)
