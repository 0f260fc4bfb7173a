"""A real worker process with a scripted runtime: answers, crashes, restarts, and nothing left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from colibri.engine.client import LocalEngine
from colibri.engine.frames import Accept, Done, Submit, Tokens
from colibri.engine.protocol import State, Status
from colibri.errors import BadRequest, ColibriError, EngineError, Unavailable
from colibri.family import Sampling
from colibri.settings import Settings
from colibri.testing.runtime import LOAD, alone


@asynccontextmanager
async def engine(*states: State, slots: int = 2, **script: Any) -> AsyncIterator[LocalEngine]:
    """A started engine, once it has been in each of `states`; checks that it leaves no process behind."""
    settings = Settings(model=msgspec.json.encode(script).decode(), kv_slots=slots, prefill_chunk=4)
    it = LocalEngine(settings, load=LOAD, pause=0.01)
    here = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    try:
        reached = [asyncio.ensure_future(turned(it, state)) for state in states]
        await it.start()
        for waiting in reached:
            await waiting
        yield it
    finally:
        await it.close()
        await it.close()
    assert it.status.state == "closed"
    assert it.pid is None
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == here
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before


async def turned(it: LocalEngine, state: State) -> Status:
    """The next status that has `state`."""
    seen: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
    it.watch(lambda status: None if seen.done() or status.state != state else seen.set_result(status))
    return await seen


async def collect(stream: Any) -> tuple[list[int], list[Any]]:
    frames = [frame async for frame in stream]
    return [token for frame in frames if isinstance(frame, Tokens) for token in frame.ids], frames


def submit(id: int, ids: list[int], count: int = 5, **fields: Any) -> Submit:
    return Submit(id, ids, count, Sampling(), **fields)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 60))


def test_drafts_are_counted() -> None:
    async def test() -> None:
        async with engine("ready", reply=[5, 6, 7] * 8) as it:
            assert it.drafts == {}
            tokens, frames = await collect(it.submit(submit(1, [1, 2], 24)))
            assert tokens == [5, 6, 7] * 8
            drafted, right = it.drafts["lookup"]
            assert (drafted, right) == frames[-1].drafts["lookup"]
            assert 0 < right <= drafted
            await collect(it.submit(submit(2, [1, 3], 24)))
            assert it.drafts["lookup"][0] > drafted

    run(test)


def test_answers() -> None:
    async def test() -> None:
        async with engine("ready") as it:
            assert it.ready is not None
            assert (it.ready.context, it.ready.slots, it.ready.vocab) == (64, 2, 32)
            ended: list[int] = []
            one = it.submit(submit(1, [1, 2, 3], 6), lambda: ended.append(1))
            two = it.submit(submit(2, [1] * 20, 30), lambda: ended.append(2))
            (tokens, frames), (others, _) = await asyncio.gather(collect(one), collect(two))
            assert tokens == alone([1, 2, 3], 6)
            assert others == alone([1] * 20, 30)
            assert isinstance(frames[0], Accept)
            assert isinstance(frames[-1], Done)
            assert frames[-1].finish == "length"
            assert sorted(ended) == [1, 2]

    run(test)


def test_on_uvloop() -> None:
    import uvloop

    async def test() -> None:
        async with engine("ready") as it:
            tokens, _ = await collect(it.submit(submit(1, [1, 2, 3], 6)))
            assert tokens == alone([1, 2, 3], 6)

    uvloop.run(asyncio.wait_for(test(), 60))


def test_refusals_come_as_bad_requests() -> None:
    async def test() -> None:
        async with engine("ready") as it:
            with pytest.raises(BadRequest, match="maximum context length is 64 tokens") as caught:
                await collect(it.submit(submit(1, [1] * 64)))
            assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "messages")
            with pytest.raises(BadRequest) as caught:
                await collect(it.submit(submit(2, [99])))
            assert caught.value.code == "invalid_token"
            with pytest.raises(BadRequest):
                await collect(it.submit(submit(3, [])))
            tokens, _ = await collect(it.submit(submit(4, [5])))
            assert tokens == alone([5], 5)

    run(test)


def test_stop_and_cancel_end_the_stream() -> None:
    async def test() -> None:
        async with engine("ready", step=0.01) as it:
            for id, end, finish in ((1, it.stop, "stop"), (2, it.cancel, "cancelled")):
                stream = it.submit(submit(id, [1, 2], 60))
                async for frame in stream:
                    if isinstance(frame, Tokens):
                        end(id)
                    if isinstance(frame, Done):
                        assert frame.finish == finish
                end(id)
            it.cancel(1234)

    run(test)


def test_a_failed_step_is_an_error_of_its_requests() -> None:
    async def test() -> None:
        async with engine("ready", raises=7) as it:
            with pytest.raises(EngineError, match="a scripted failure"):
                await collect(it.submit(submit(1, [7])))
            tokens, _ = await collect(it.submit(submit(2, [8, 9], 1)))
            assert tokens == alone([8, 9], 1)
            assert it.status.state == "ready"

    run(test)


def test_a_killed_worker_fails_what_is_in_flight_and_comes_back() -> None:
    async def test() -> None:
        async with engine("ready", step=0.01) as it:
            ended: list[int] = []
            streams = [it.submit(submit(id, [id], 60), lambda: ended.append(1)) for id in (1, 2)]
            async for frame in streams[0]:
                if isinstance(frame, Tokens):
                    break
            assert it.pid is not None
            again = asyncio.ensure_future(turned(it, "restarting"))
            await asyncio.sleep(0)
            os.kill(it.pid, signal.SIGKILL)
            await again
            with pytest.raises(Unavailable):
                it.submit(submit(3, [1]))
            back = asyncio.ensure_future(turned(it, "ready"))
            for stream in streams:
                with pytest.raises(EngineError, match=r"killed by SIGKILL \(out of memory\?") as caught:
                    await collect(stream)
                assert caught.value.code == "engine_crashed"
            assert ended == [1, 1]
            await back
            assert it.status == Status("ready", restarts=1)
            tokens, _ = await collect(it.submit(submit(4, [1, 2], 6)))
            assert tokens == alone([1, 2], 6)

    run(test)


def test_a_prompt_that_kills_the_worker_again_and_again() -> None:
    async def test() -> None:
        async with engine("ready", poison=7) as it:
            for id in range(1, 8):
                back = asyncio.ensure_future(turned(it, "ready"))
                await asyncio.sleep(0)
                with pytest.raises(EngineError, match="SIGKILL"):
                    await collect(it.submit(submit(id, [7])))
                await back
            assert it.status.restarts == 7

    run(test)


def test_a_model_that_cannot_be_loaded() -> None:
    async def test() -> None:
        async with engine("failed", broken="the header is cut short") as it:
            assert it.status == Status("failed", "model.gguf: the header is cut short")
            with pytest.raises(Unavailable, match=r"can't be served: model\.gguf: the header is cut short"):
                it.submit(submit(1, [1]))

    run(test)


def test_a_worker_that_dies_while_loading_is_given_up() -> None:
    async def test() -> None:
        async with engine("failed", deadly=int(signal.SIGILL)) as it:
            assert "killed by SIGILL" in it.status.detail
            assert "--isa scalar" in it.status.detail
            assert it.ready is None

    run(test)


def test_an_engine_that_does_not_come_back_is_given_up(tmp_path: Path) -> None:
    async def test() -> None:
        async with engine("ready", once=str(tmp_path / "loaded"), poison=7) as it:
            failed = asyncio.ensure_future(turned(it, "failed"))
            with pytest.raises(EngineError, match="SIGKILL"):
                await collect(it.submit(submit(1, [7])))
            assert (await failed).detail == "model.gguf: was loaded once"
            with pytest.raises(Unavailable, match=r"can't be served: model\.gguf: was loaded once"):
                it.submit(submit(2, [1]))

    run(test)


def test_progress_and_no_requests_while_loading() -> None:
    async def test() -> None:
        async with engine(loading=30) as it:
            seen = await turned(it, "loading")
            while seen.detail != "reading the script":
                seen = await turned(it, "loading")
            assert seen.fraction == 0.5
            with pytest.raises(Unavailable, match="still loading") as caught:
                it.submit(submit(1, [1]))
            assert ("Retry-After", "2") in caught.value.headers

    run(test)


def test_closing_fails_what_is_in_flight() -> None:
    async def test() -> None:
        async with engine("ready", step=0.01) as it:
            stream = it.submit(submit(1, [1], 60))
        with pytest.raises(ColibriError, match="shutting down"):
            await collect(stream)

    run(test)


GATEWAY = """
    import asyncio, json, os, signal
    from colibri.engine.client import LocalEngine
    from colibri.engine.frames import Submit
    from colibri.family import Sampling
    from colibri.settings import Settings
    from colibri.testing.runtime import LOAD

    async def main():
        engine = LocalEngine(Settings(model=json.dumps(SCRIPT), kv_slots=1), load=LOAD)
        await engine.start()
        while engine.pid is None or (SCRIPT.get("loading", 0) == 0 and engine.status.state != "ready"):
            await asyncio.sleep(0.01)
        if engine.status.state == "ready":
            stream = engine.submit(Submit(1, [1], 60, Sampling()))
            await anext(stream)
        print(engine.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    asyncio.run(main())
"""


@pytest.mark.parametrize("script", [{"step": 0.02}, {"loading": 60}])
def test_no_orphan_when_the_gateway_is_killed(script: dict[str, Any]) -> None:
    code = f"SCRIPT = {script!r}\n" + textwrap.dedent(GATEWAY)
    gateway = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert gateway.returncode == -signal.SIGKILL, gateway.stderr
    assert gateway.stderr == ""
    try:
        worker = psutil.Process(int(gateway.stdout))
        worker.wait(30)
    except psutil.NoSuchProcess:
        pass
    assert not psutil.pid_exists(int(gateway.stdout)) or psutil.Process(int(gateway.stdout)).status() == "zombie"


def test_ctrl_c_is_the_gateways_business() -> None:
    async def test() -> None:
        async with engine(step=0.01) as it:
            while it.pid is None:  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0)
            first = it.pid
            os.kill(first, signal.SIGINT)
            await turned(it, "ready")
            os.kill(first, signal.SIGINT)
            os.kill(first, signal.SIGTERM)
            tokens, _ = await collect(it.submit(submit(1, [1], 20)))
            assert tokens == alone([1], 20)
            assert it.pid == first

    run(test)
