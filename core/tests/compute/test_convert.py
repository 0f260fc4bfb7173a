"""Converted models: what is stored in them, what they compute, and conversions that are broken off or can't be."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from colibri.compute import convert as conversion
from colibri.compute.checkpoint import Checkpoint, open_checkpoint
from colibri.compute.container import ALIGNMENT
from colibri.compute.convert import Choice, Conversion, convert, verify
from colibri.compute.load import declare, load_runtime
from colibri.compute.runtime import Runtime
from colibri.errors import CheckpointError, ColibriError
from colibri.testing.checkpoints import seeded_weights, write_checkpoint, write_gguf
from colibri.testing.drive import logits_of
from colibri.testing.interpreter import InterpretedRuntime
from colibri.testing.storage import values_of

from .conftest import CONFIG, EXPERTS, METADATA, SHAPES, WIDTH

INNER = 128
WIDE = {
    **SHAPES,
    "unused.weight": (700, 1024),
    "unused.table": (8,),
    **{f"layer.experts.{e}.{n}.weight": (INNER, WIDTH) for e in range(EXPERTS) for n in ("gate_proj", "up_proj")},
    **{f"layer.experts.{e}.down_proj.weight": (WIDTH, INNER) for e in range(EXPERTS)},
}
IDS = list(range(3, 43))
KINDS = {"layer.router.weight": "f32", "layer.v.weight": "q4_0"}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """A model whose experts have whole groups of columns, in two shards, with a template and something that no plan uses."""
    folder = write_checkpoint(tmp_path_factory.mktemp("source"), CONFIG, seeded_weights(WIDE, 3), dtype="bf16", shards=2)
    (folder / "chat_template.jinja").write_text("a template")
    return open_checkpoint(folder)


def run(toy: Any, source: Checkpoint, target: Path, choice: Choice | None = None, keep_free: int = 0) -> Conversion:
    return convert(
        toy, source, target, choice or Choice(), threads=2, keep_free=keep_free, progress=lambda done, total: None
    )


@pytest.fixture(scope="module")
def converted(toy: Any, source: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("made") / "model"
    verify(target, run(toy, source, target))
    return target


def native(toy: Any, path: Path, **options: Any) -> Runtime:
    return load_runtime(toy, open_checkpoint(path), context=64, slots=2, max_rows=64, **options)


def test_experts_lie_in_records_and_matrices_are_packed(converted: Path, source: Checkpoint) -> None:
    found = open_checkpoint(converted)
    bank = found.banks["layer.experts"]
    assert len(bank.gate) == len(bank.up) == len(bank.down) == EXPERTS
    record = bank.gate[1].offset - bank.gate[0].offset
    assert record % ALIGNMENT == bank.gate[0].offset % ALIGNMENT == 0
    for e in range(EXPERTS):
        for kind in ("gate", "up", "down"):
            tensor, published = getattr(bank, kind)[e], source.tensor(f"layer.experts.{e}.{kind}_proj.weight")
            assert (tensor.dtype, tensor.shape) == ("i4x16", published.shape)
            lost = values_of(tensor) - values_of(published)
            assert np.linalg.norm(lost) < 0.08 * np.linalg.norm(values_of(published))
    assert {name: found.tensor(name).dtype for name in ("layer.q.weight", "head.weight", "embed.weight")} == {
        "layer.q.weight": "i8x16",
        "head.weight": "i8x16",
        "embed.weight": "i8x16",
    }
    # What chooses experts stays as it was, and so does what is no matrix.
    for name in ("layer.router.weight", "layer.norm.weight", "layer.q.bias", "unused.table"):
        assert found.tensor(name).dtype == source.tensor(name).dtype
        assert (values_of(found.tensor(name)) == values_of(source.tensor(name))).all()
    assert "unused.weight" not in found.tensors
    assert not any(name.startswith("layer.experts.") for name in found.tensors)
    assert (converted / "chat_template.jinja").read_text() == "a template"
    assert json.loads((converted / "config.json").read_text()) == source.config


def test_every_file_is_valid_safetensors(converted: Path) -> None:
    files = sorted(converted.glob("*.safetensors"))
    assert len(files) == 2
    for file in files:
        with safe_open(file, "np") as opened:
            assert all(min(opened.get_slice(name).get_shape()) > 0 for name in opened.keys())  # noqa: SIM118


@pytest.mark.parametrize("choice", [Choice(), Choice("int8", "int8"), Choice("int4", "int4"), Choice("keep", "keep")])
def test_a_converted_model_computes_what_its_weights_say(
    toy: Any, source: Checkpoint, tmp_path: Path, choice: Choice
) -> None:
    target = tmp_path / "model"
    run(toy, source, target, choice)
    whole = logits_of(native(toy, target), IDS)
    # Against the interpreter on the same file: all that is left is the rounding of activations.
    plan, tensors = declare(toy, open_checkpoint(target))
    assert plan == declare(toy, source)[0] or choice.experts != "keep"
    expected = logits_of(InterpretedRuntime(plan, tensors, context=64, slots=1, max_rows=64), IDS)
    errors = np.linalg.norm(whole - expected, axis=1) / np.linalg.norm(expected, axis=1)
    assert np.median(errors) < (1e-5 if choice == Choice("keep", "keep") else 0.04)
    # And the same bytes in any pieces, with any threads, on every path.
    from colibri._native import isas

    assert logits_of(native(toy, target), IDS, slot=1, chunks=[1, 2, 3, 4, 5, 6]).tobytes() == whole.tobytes()
    for isa in isas():
        assert logits_of(native(toy, target, isa=isa, threads=1), IDS, chunks=[7] * 6).tobytes() == whole.tobytes()


def test_a_conversion_goes_on_where_it_was_broken_off(
    toy: Any, source: Checkpoint, converted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "model"
    written: list[str] = []
    write = conversion._write

    def once(file: Path, *rest: Any) -> Any:
        if written:
            file.with_name(file.name + ".partial").write_bytes(b"half of it")
            raise KeyboardInterrupt
        written.append(file.name)
        return write(file, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(conversion, "_write", once)
        with pytest.raises(KeyboardInterrupt):
            run(toy, source, target)
    first = (target / written[0]).stat().st_mtime_ns
    verify(target, run(toy, source, target))
    assert (target / written[0]).stat().st_mtime_ns == first
    for file in converted.iterdir():
        assert (target / file.name).read_bytes() == file.read_bytes()
    assert not list(target.glob("*.partial"))


def test_nothing_is_written_over_what_is_there(toy: Any, source: Checkpoint, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine.txt").write_text("mine")
    with pytest.raises(ColibriError, match="is not empty"):
        run(toy, source, other)
    with pytest.raises(ColibriError, match="is not empty"):
        run(toy, source, other / "mine.txt")
    with pytest.raises(ColibriError, match="is not empty"):
        run(toy, source, source.path)
    assert [file.name for file in other.iterdir()] == ["mine.txt"]
    target = tmp_path / "model"
    run(toy, source, target)
    with pytest.raises(ColibriError, match="another model, or to other types"):
        run(toy, source, target, Choice("int4", "int4"))


def test_a_disk_without_room_is_told_before_anything_is_written(toy: Any, source: Checkpoint, tmp_path: Path) -> None:
    with pytest.raises(ColibriError, match="keep-free"):
        run(toy, source, tmp_path / "model", keep_free=1 << 60)
    assert not list((tmp_path / "model").glob("*.safetensors*"))


def test_a_file_that_changed_is_found(toy: Any, source: Checkpoint, tmp_path: Path) -> None:
    target = tmp_path / "model"
    done = run(toy, source, target)
    file = target / done.written[-1].file
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(CheckpointError, match="not as it was written"):
        verify(target, done)


def edited(converted: Path, target: Path, edit: Any) -> Path:
    """A copy whose file of experts has another header, as long as the first."""
    shutil.copytree(converted, target)
    file = next(target.glob("experts-*"))
    raw = file.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    edit(header)
    text = json.dumps(header).encode()
    file.write_bytes(raw[:8] + text.ljust(length) + raw[8 + length :])
    return target


def bank(header: Any) -> Any:
    return json.loads(header["__metadata__"]["colibri.banks"])


def put(header: Any, value: Any) -> None:
    header["__metadata__"]["colibri.banks"] = json.dumps(value)


def described(**parts: Any) -> Any:
    """An edit of the bank's description: of the whole part, or of one of its keys."""

    def edit(header: Any) -> None:
        found = bank(header)
        for name, value in parts.items():
            found["layer.experts"][name] = {**found["layer.experts"][name], **value}
        put(header, found)

    return edit


def metadata(**values: Any) -> Any:
    return lambda header: header["__metadata__"].update({f"colibri.{key}": value for key, value in values.items()})


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (metadata(container="2"), "format '2', this version reads '1'"),
        (metadata(banks="{"), "colibri.banks is malformed"),
        (metadata(banks=5), "colibri.banks is malformed"),
        (lambda header: put(header, {"other": bank(header)["layer.experts"]}), "there are no such bytes"),
        (described(up={"shape": [16, 64]}), "do not go together"),
        (described(down={"offset": 1 << 20}), "leaves the record"),
        (described(down={"dtype": "x"}), "can't be x of shape [64, 128]"),
    ],
)
def test_a_broken_description_is_refused(converted: Path, tmp_path: Path, edit: Any, message: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(edited(converted, tmp_path / "x", edit))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@settings(deadline=None, max_examples=150)
@given(
    key=st.sampled_from(["dtype", "shape", "offset"]),
    part=st.sampled_from(["gate", "up", "down"]),
    value=st.sampled_from([0, -1, 1 << 62, 64, "i4x16", "f32", "u4", [64, 128], [128, 64], [0, 0], [1 << 40, 64], [], None]),
)
def test_any_description_is_read_or_refused_in_a_line(
    toy: Any, converted: Path, tmp_path_factory: pytest.TempPathFactory, key: str, part: str, value: Any
) -> None:
    def edit(header: Any) -> None:
        found = bank(header)
        found["layer.experts"][part][key] = value
        put(header, found)

    target = tmp_path_factory.mktemp("edited") / "x"
    try:
        declare(toy, open_checkpoint(edited(converted, target, edit)))
    except CheckpointError as error:
        message = str(error)
        assert "\n" not in message
    finally:
        shutil.rmtree(target)


def test_a_bank_with_other_experts_than_the_model_has_is_refused(toy: Any, converted: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(converted, tmp_path / "x")
    config = {**json.loads((folder / "config.json").read_text())}
    (folder / "config.json").write_text(json.dumps(config))
    opened = open_checkpoint(folder)
    fewer = msgspec.structs.replace(opened.banks["layer.experts"], gate=opened.banks["layer.experts"].gate[:-1])
    with pytest.raises(CheckpointError, match=f"a bank of {EXPERTS - 1} experts, {EXPERTS} are needed"):
        declare(toy, msgspec.structs.replace(opened, banks={"layer.experts": fewer}))


def test_a_gguf_file_keeps_its_metadata_and_its_names(toy: Any, tmp_path: Path) -> None:
    arrays = seeded_weights(WIDE, 3)
    vocabulary = {"tokenizer.ggml.tokens": ["a", "b"], "split.count": 1}
    file = write_gguf(
        tmp_path / "published.gguf", {**METADATA, **vocabulary}, arrays, dtype=lambda name: KINDS.get(name, "q8_0")
    )
    source = open_checkpoint(file)
    target = tmp_path / "model"
    verify(target, run(toy, source, target))
    found = open_checkpoint(target)
    assert (found.format, found.metadata, found.path) == ("gguf", source.metadata, target / "metadata.gguf")
    assert found.tensor("layer.q.weight").dtype == "i8x16"
    assert len(found.banks["layer.experts"].gate) == EXPERTS
    # A type that safetensors has no word for stays as it is all the same.
    run(toy, source, tmp_path / "kept", Choice("keep", "keep"))
    kept = open_checkpoint(tmp_path / "kept")
    assert (kept.tensor("layer.q.weight").dtype, kept.tensor("layer.v.weight").dtype) == ("q8_0", "q4_0")
    assert logits_of(native(toy, tmp_path / "kept"), IDS).tobytes() == logits_of(native(toy, file), IDS).tobytes()
