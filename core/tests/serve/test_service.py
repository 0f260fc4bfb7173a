"""A service as `colibri serve` opens it: files, a plugin, a worker process and the native runtime."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import psutil
import pytest
from msgspec.structs import replace

from colibri.chat.conversation import Conversation
from colibri.chat.tokenizer import Tokenizer
from colibri.compute.checkpoint import Checkpoint
from colibri.errors import CheckpointError, ColibriError, EngineError, PluginError, SettingError, Unavailable
from colibri.plugins import load_plugins
from colibri.serve.request import GenerationRequest
from colibri.serve.service import ModelService, name_of
from colibri.settings import Settings
from colibri.testing.checkpoints import seeded_weights, write_checkpoint

from .conftest import VOCAB, byte_tokenizer, engine_saying, service_on, user

PLUGIN = str(Path(__file__).with_name("tiny_family.py"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "Tiny Model (v1)"
    shapes = {"embed": (VOCAB, 16), "q": (16, 16), "k": (16, 16), "v": (16, 16), "o": (16, 16), "head": (VOCAB, 16)}
    write_checkpoint(path, {"model_type": "tiny"}, seeded_weights(shapes, 1))
    byte_tokenizer(path)
    return path


def settings_of(model: Path, **fields: Any) -> Settings:
    settings = Settings(model=str(model), plugin=(PLUGIN,), plugins=(), threads=1, max_tokens=20, kv_save=False)
    return replace(settings, **fields)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 60))


async def ask(service: ModelService, text: str) -> tuple[str, int]:
    generation = service.generate(GenerationRequest(conversation=Conversation((user(text),))))
    admission = await generation.admitted()
    events = [event async for batch in generation for event in batch]
    return "".join(event.text for event in events), admission.cached_tokens


def test_open_answer_crash_answer_close(folder: Path) -> None:
    async def test() -> None:
        settings = settings_of(folder)
        stages: list[tuple[str, float]] = []
        service = await ModelService.open(settings, load_plugins(settings), lambda *stage: stages.append(stage))
        try:
            assert stages
            assert all(0 <= fraction <= 1 for _, fraction in stages)
            assert service.model_id == "tiny-model-v1"
            assert (service.variant.name, service.slots, service.max_tokens) == ("tiny", 1, 20)
            well, told = service.health()
            assert well
            assert told["status"] == "ok"
            first, cached = await ask(service, "Hello there")
            assert cached == 0
            again, cached = await ask(service, "Hello there")
            assert (again, cached) == (first, 13)
            [worker] = psutil.Process().children()
            worker.send_signal(signal.SIGKILL)
            while service.health()[0]:  # noqa: ASYNC110 - health is what is tested
                await asyncio.sleep(0.001)
            assert service.health()[1]["status"] == "restarting"
            answers = await asyncio.gather(*(ask(service, "Hello there") for _ in range(3)))  # they wait
            assert [answer for answer, _ in answers] == [first] * 3
            assert service.health()[0]
        finally:
            await service.close()
            await service.close()
        assert service.health()[1]["status"] == "stopping"
        assert psutil.Process().children() == []
        with pytest.raises(Unavailable):
            await ask(service, "Hello there")

    run(test)


def test_a_conversation_goes_on_after_a_restart(folder: Path, tmp_path: Path) -> None:
    async def test() -> None:
        settings = settings_of(folder, kv_save=True, kv_dir=str(tmp_path), kv_slots=2)
        answers = []
        for _ in range(2):
            service = await ModelService.open(settings, load_plugins(settings))
            try:
                answers.append(await ask(service, "Hello there"))
            finally:
                await service.close()
        [(first, cold), (second, cached)] = answers
        assert (second, cold, cached) == (first, 0, 13)

    run(test)


def test_open_without_waiting(folder: Path) -> None:
    async def test() -> None:
        settings = settings_of(folder, model_id="mine")
        service = await ModelService.open(settings, load_plugins(settings), wait=False)
        try:
            assert service.model_id == "mine"
            assert not service.health()[0]
            with pytest.raises(Unavailable, match="still loading"):
                await ask(service, "Hi")
            await service.loaded()
            assert service.health()[0]
            await ask(service, "Hi")
        finally:
            await service.close()

    run(test)


def damaged(folder: Path, target: Path, damage: Callable[[Path], None]) -> Path:
    target.mkdir()
    for file in folder.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    damage(target)
    return target


@pytest.mark.parametrize(
    ("damage", "fields", "error", "message"),
    [
        (lambda path: None, {"model": None}, SettingError, "--model"),
        (lambda path: None, {"plugin": ()}, PluginError, "no installed plugin serves model type 'tiny'"),
        (lambda path: None, {"ctx": 4096}, EngineError, "--ctx 4096 is more than this model's limit of 128 tokens"),
        (lambda path: os.remove(path / "tokenizer.json"), {}, CheckpointError, "tokenizer.json"),
        (
            lambda path: (path / "tokenizer.json").write_text(
                (path / "tokenizer.json").read_text().replace("<|end|>", "<|eot|>")
            ),
            {},
            CheckpointError,
            r"no control token '<\|end\|>'",
        ),
        (
            lambda path: (path / "tokenizer.json").write_text(
                (path / "tokenizer.json").read_text().replace('"id": 258', f'"id": {VOCAB}')
            ),
            {},
            CheckpointError,
            rf"tokenizer\.json: gives '<\|end\|>' the id {VOCAB}, but the model has {VOCAB} tokens",
        ),
        (lambda path: os.truncate(path / "model.safetensors", 2000), {}, CheckpointError, r"model\.safetensors"),
    ],
)
def test_what_cannot_be_opened(
    folder: Path,
    tmp_path: Path,
    damage: Callable[[Path], None],
    fields: dict[str, Any],
    error: type[ColibriError],
    message: str,
) -> None:
    async def test() -> None:
        settings = replace(settings_of(damaged(folder, tmp_path / "model", damage)), **fields)
        with pytest.raises(error, match=message) as caught:
            await ModelService.open(settings, load_plugins(settings))
        assert "\n" not in caught.value.message
        assert psutil.Process().children() == []

    run(test)


def test_health_tells_of_drafts_once_there_were_some(tokenizer: Tokenizer) -> None:
    async def test() -> None:
        engine = engine_saying("ok")
        service = service_on(engine, tokenizer)
        told: Any = service.health()[1]["engine"]
        assert "drafts" not in told
        engine.drafts["lookup"] = (12, 9)
        told = service.health()[1]["engine"]
        assert told["drafts"] == {"lookup": {"drafted": 12, "accepted": 9}}

    run(test)


@pytest.mark.parametrize(
    ("path", "metadata", "name"),
    [
        ("/m/Big Model-7B.Q4_K_M.gguf", {"general.name": "Big Model 7B Instruct"}, "big-model-7b-instruct"),
        ("/m/folder", {"general.name": " "}, "folder"),
        ("/m/folder", {"general.name": 7}, "folder"),
        ("/m/Ünïcode (x)", {}, "n-code-x"),
        ("/m/---", {}, "model"),
    ],
)
def test_names(path: str, metadata: dict[str, Any], name: str) -> None:
    assert name_of(Checkpoint(Path(path), "gguf", {}, metadata, {})) == name
