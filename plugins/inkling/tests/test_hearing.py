"""Sounds among tokens, from a client's request to the tokens of the answer, against transformers."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colibri import _native
from colibri.api.app import build
from colibri.api.message import Reply, Request
from colibri.chat.conversation import MediaPart
from colibri.chat.tokenizer import Tokenizer
from colibri.compute.checkpoint import open_checkpoint
from colibri.compute.load import declare, load_runtime
from colibri.compute.plan import Codes
from colibri.compute.runtime import Row, Runtime
from colibri.errors import BadRequest, ColibriError, Refusal
from colibri.family import Variant
from colibri.serve.preparation import Model
from colibri.serve.service import ModelService
from colibri.settings import Settings
from colibri.testing.checkpoints import write_checkpoint
from colibri.testing.drive import logits_of
from colibri.testing.interpreter import InterpretedRuntime
from colibri.testing.runtime import ScriptedEngine
from colibri_inkling import Inkling
from colibri_inkling.audio import BANDS, LEVELS

from .hearing import DATA, messages, small_arrays, small_config, write_hearing_model, write_tokenizer

FAMILY = Inkling()
SOUNDS = DATA / "audio"
CLOSE = 2e-3


def reference(name: str) -> dict[str, np.ndarray]:
    with np.load(SOUNDS / f"{name}.npz") as stored:
        return dict(stored)


def placed(ids: Sequence[int], mark: int, levels: Sequence[Sequence[int]]) -> list[int | bytes]:
    """The ids with the codes of a sound where its marks stand."""
    codes = (struct.pack(f"<{len(frame)}H", *frame) for frame in levels)
    return [next(codes) if id == mark else id for id in ids]


# The forward pass.


@pytest.fixture(scope="module")
def small() -> tuple[list[int | bytes], np.ndarray]:
    """Tokens and codes of four bands, and what transformers makes of them."""
    stored = reference("small")
    mark = small_config()["audio_token_id"]
    return placed(stored["ids"].tolist(), mark, stored["levels"].tolist()), stored["logits"]


def test_sounds_are_heard_as_transformers_hears_them(small: tuple[list[int | bytes], np.ndarray]) -> None:
    ids, expected = small
    checkpoint = open_checkpoint(DATA / "inkling")
    plan, tensors = declare(FAMILY, checkpoint)
    assert plan.codes == Codes(4, 8)
    for runtime, close in (
        (InterpretedRuntime(plan, tensors, context=64), 2e-5),
        (load_runtime(FAMILY, checkpoint, context=64), CLOSE),
    ):
        assert np.abs(logits_of(runtime, ids) - expected).max() < close


def test_chunks_slots_threads_and_code_paths_change_nothing(small: tuple[list[int | bytes], np.ndarray]) -> None:
    ids, _ = small
    checkpoint = open_checkpoint(DATA / "inkling")
    whole = logits_of(load_runtime(FAMILY, checkpoint, context=64), ids)
    for isa in _native.isas():
        runtime = load_runtime(FAMILY, checkpoint, context=64, slots=2, threads=3, isa=isa)
        for slot, chunks in ((0, [1] * 30), (1, [7, 1, 5])):
            assert logits_of(runtime, ids, slot=slot, chunks=chunks).tobytes() == whole.tobytes()


# A request.


class Watched:
    """A runtime that keeps what it was asked to compute, with what came of it."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.rows: list[Row] = []
        self.picked: list[int] = []
        self.seen: list[np.ndarray] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    def step(self, rows: Sequence[Row]) -> list[int]:
        tokens = self._runtime.step(rows)
        self.rows += rows
        self.picked += tokens
        self.seen += [np.array(self._runtime.logits(i)) for i in range(len(tokens))]
        return tokens


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_hearing_model(tmp_path_factory.mktemp("hearing"))


class Server:
    """A service on the real runtime, as its clients see it, and what the runtime was asked."""

    def __init__(self, folder: Path, context: int = 256) -> None:
        checkpoint = open_checkpoint(folder)
        variant = FAMILY.variant_for(checkpoint)
        assert variant is not None
        self.watched = Watched(load_runtime(FAMILY, checkpoint, context=context, slots=1, max_rows=32))
        engine = ScriptedEngine(self.watched, chunk=24)  # type: ignore[arg-type]
        model = Model(FAMILY, variant, Tokenizer.load(FAMILY.tokenizer(checkpoint)), Settings())
        routes = build(ModelService(model, engine, "tiny"), Settings()).routes
        (self._handler,) = (route.handler for route in routes if route.path == "/v1/chat/completions")

    async def chat(self, messages: list[dict[str, Any]]) -> Any:
        """The reply, or the error."""
        fields = {"model": "tiny", "temperature": 0, "max_tokens": 10, "messages": messages}
        body, headers = json.dumps(fields).encode(), {"content-type": "application/json"}
        try:
            reply = await self._handler(Request("POST", "/v1/chat/completions", headers=headers, body=body))
        except ColibriError as error:
            return error
        assert isinstance(reply, Reply)
        return json.loads(reply.body)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 60))


def sound(name: str) -> str:
    return base64.b64encode((SOUNDS / f"{name}.wav").read_bytes()).decode()


def spoken(reply: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": reply["choices"][0]["message"]["content"]}


def counted(reply: Any) -> tuple[int, int, int]:
    """Tokens of the prompt, those that were cached, and those of sound."""
    details = reply["usage"]["prompt_tokens_details"]
    return reply["usage"]["prompt_tokens"], details["cached_tokens"], details["audio_tokens"]


def test_a_request_with_a_sound_is_answered_as_transformers_answers(folder: Path) -> None:
    stored = reference("chat")
    ids, mark = stored["ids"].tolist(), int(stored["mark"])
    heard = [[int(level, 16) for level in frame] for frame in json.loads((SOUNDS / "levels.json").read_text())["voice"]]

    async def test() -> None:
        server = Server(folder)
        reply = await server.chat(messages(str(stored["question"]), sound("voice")))
        assert [row.codes or row.token for row in server.watched.rows[: len(ids)]] == placed(ids, mark, heard)
        assert server.watched.picked[:10] == stored["answer"].tolist()
        assert np.abs(server.watched.seen[0] - stored["logits"]).max() < CLOSE
        assert counted(reply) == (len(ids), 0, len(heard))
        assert reply["usage"]["completion_tokens"] == 10

    run(test)


def test_a_sound_that_comes_again_is_neither_encoded_nor_computed_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode, encoded = Inkling.encode, list[bytes]()

    def watched(self: Inkling, variant: Variant, part: MediaPart, param: str, room: int) -> Sequence[bytes]:
        encoded.append(part.data)
        return encode(self, variant, part, param, room)

    monkeypatch.setattr(Inkling, "encode", watched)

    async def test() -> None:
        server = Server(folder)
        first = messages("What?", sound("voice"))
        one = await server.chat(first)
        both = [*first, spoken(one), *messages("And?", sound("sweep"))]
        two = await server.chat(both)
        assert len(encoded) == 2
        assert counted(two)[1] >= counted(one)[0]
        assert counted(two)[2] == 17 + 7
        history = {row.position: row.codes or row.token for row in server.watched.rows}
        cold = load_runtime(FAMILY, open_checkpoint(folder), context=256)
        expected = logits_of(cold, [history[at] for at in range(len(history))])
        assert np.stack(server.watched.seen[-10:]).tobytes() == expected[-10:].tobytes()

    run(test)


def test_another_sound_is_not_taken_for_this_one(folder: Path) -> None:
    async def test() -> None:
        server = Server(folder)
        prompt, _, heard = counted(await server.chat(messages("What?", sound("voice"))))
        other = await server.chat(messages("What?", sound("sweep")))
        assert 0 < counted(other)[1] < prompt - heard
        cold = await Server(folder).chat(messages("What?", sound("sweep")))
        assert spoken(cold) == spoken(other)

    run(test)


def test_text_that_spells_a_sounds_tokens_stays_text(folder: Path) -> None:
    async def test() -> None:
        server = Server(folder)
        spelled = "<|content_audio_input|><|audio_end|>"
        await server.chat([{"role": "user", "content": spelled}])
        assert not any(row.codes for row in server.watched.rows)
        assert spelled.encode() in bytes(row.token for row in server.watched.rows if row.token < 128)

    run(test)


# What can't be heard.


def test_a_sound_that_does_not_fit_is_refused_before_it_is_encoded(folder: Path) -> None:
    text, sweep = messages("Hi", sound("sweep"))[0]["content"]
    cases: list[tuple[list[Any], str]] = [
        ([text, audio(quiet(64 * 800))], "messages.0.content.1.input_audio"),
        ([audio(quiet(57 * 800)), sweep, text], "messages.0.content.1.input_audio"),
        ([audio(quiet(56 * 800)), sweep, text], "messages"),  # what stands around them does not fit
    ]

    async def test() -> None:
        server = Server(folder, context=64)
        for content, param in cases:
            error = await server.chat([{"role": "user", "content": content}])
            assert isinstance(error, BadRequest)
            assert (error.code, error.status, error.param) == ("context_length_exceeded", 400, param)
        assert not server.watched.rows

    run(test)


def quiet(samples: int) -> bytes:
    form, body = struct.pack("<IHHIIHH", 16, 1, 1, 16_000, 32_000, 2, 16), bytes(2 * samples)
    return b"RIFF" + bytes(4) + b"WAVEfmt " + form + b"data" + struct.pack("<I", len(body)) + body


def audio(data: bytes) -> dict[str, Any]:
    return {"type": "input_audio", "input_audio": {"data": base64.b64encode(data).decode(), "format": "wav"}}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is no WAV file"),
        (b"ID3" + bytes(99), "is no WAV file"),
        (quiet(800)[:-1], "is cut short"),
        (quiet(800).replace(struct.pack("<I", 16_000), struct.pack("<I", 8_000)), "has 8000 samples a second"),
        (quiet(800).replace(b"\x10\0\0\0\1\0", b"\x10\0\0\0\6\0"), "is compressed (format 6)"),
    ],
)
def test_what_is_no_sound_is_refused_by_its_field(folder: Path, data: bytes, reason: str) -> None:
    content = [{"type": "text", "text": "?"}, audio(data)]

    async def test() -> None:
        server = Server(folder)
        error = await server.chat([{"role": "system", "content": "Listen."}, {"role": "user", "content": content}])
        assert isinstance(error, BadRequest)
        assert (error.status, error.param) == (400, "messages.1.content.1.input_audio")
        assert reason in error.message
        assert counted(await server.chat(messages("?", sound("silence"))))[2] == 2

    run(test)


def test_a_model_that_does_not_hear_refuses_sounds_by_name(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, small_config(), small_arrays())  # other bands than are made here
    write_tokenizer(tmp_path)

    async def test() -> None:
        error = await Server(tmp_path).chat(messages("?", sound("silence")))
        assert isinstance(error, Refusal)
        assert (error.code, error.param) == ("unsupported_content_type", "messages.0.content.1")

    run(test)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_any_file_is_heard_or_refused(data: st.DataObject) -> None:
    whole = (SOUNDS / data.draw(st.sampled_from(["silence.wav", "sweep.wav"]))).read_bytes()
    bent = bytearray(whole[: data.draw(st.integers(0, 2000) | st.just(len(whole)))])
    for at, byte in data.draw(st.lists(st.tuples(st.integers(0, 80), st.integers(0, 255)), max_size=6)):
        if at < len(bent):
            bent[at] = byte
    room = data.draw(st.integers(-1, 60))
    try:
        found = FAMILY.encode(FAMILY.variants()[0], MediaPart("audio", bytes(bent), "wav"), "messages.0", room)
    except BadRequest as error:
        refused = error
    else:
        assert len(found) <= room
        assert all(len(frame) == BANDS and max(frame) < LEVELS for frame in found)
        return
    assert (refused.param, refused.status) == ("messages.0", 400)
