from __future__ import annotations

import math
import os
import struct
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from colibri.compute.checkpoint import BLOCKS, Checkpoint, Tensor, open_checkpoint
from colibri.compute.gguf import _TYPES
from colibri.errors import CheckpointError
from colibri.testing.broken import write_corpus
from colibri.testing.checkpoints import seeded_weights, write_checkpoint, write_gguf, write_safetensors

ARRAYS = seeded_weights({"a.weight": (4, 32), "b.weight": (32,)}, 1)


def refused(path: Path | str) -> str:
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(path)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_folder_of_safetensors(tmp_path: Path) -> None:
    found = open_checkpoint(write_checkpoint(tmp_path, {"model_type": "x"}, ARRAYS, dtype="bf16"))
    assert (found.format, found.model_type, found.config, found.metadata) == ("safetensors", "x", {"model_type": "x"}, {})
    tensor = found.tensor("a.weight")
    assert (tensor.dtype, tensor.shape, tensor.nbytes, tensor.file) == ("bf16", (4, 32), 256, tmp_path / "model.safetensors")


def test_a_gguf_file_and_the_folder_around_it(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "x.gguf", {"general.architecture": "y"}, ARRAYS, dtype="q4_0")
    assert open_checkpoint(file) == open_checkpoint(str(tmp_path))
    found = open_checkpoint(file)
    assert (found.format, found.model_type, found.config) == ("gguf", "y", {})
    assert found.tensor("a.weight").shape == (4, 32)
    assert found.tensor("a.weight").dtype == "q4_0"


def test_a_model_type_that_is_no_word(tmp_path: Path) -> None:
    assert open_checkpoint(write_checkpoint(tmp_path, {"model_type": ["x"]}, ARRAYS)).model_type is None


def test_a_file_beside_the_weights(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_checkpoint(tmp_path, {}, ARRAYS))
    with pytest.raises(CheckpointError, match=r"the model has no tokenizer\.json"):
        checkpoint.beside("tokenizer.json")
    with pytest.raises(CheckpointError, match=r"neither a b\.json nor a c\.model"):
        checkpoint.beside("b.json", "c.model")
    (tmp_path / "c.model").touch()
    assert checkpoint.beside("b.json", "c.model") == tmp_path / "c.model"


def test_what_is_no_model(tmp_path: Path) -> None:
    assert "does not exist" in refused(tmp_path / "absent")
    assert "neither safetensors nor a GGUF file" in refused(tmp_path)
    assert "cannot be read" in refused("a\0b")
    write_safetensors(tmp_path / "one.safetensors", ARRAYS)
    assert "give the folder" in refused(tmp_path / "one.safetensors")
    assert "config.json: does not exist" in refused(tmp_path)
    (tmp_path / "text").write_text("hello, this is not a model at all")
    assert "is not a GGUF file" in refused(tmp_path / "text")


def test_several_models_in_a_folder_are_listed(tmp_path: Path) -> None:
    for name in ("x.gguf", "y.gguf"):
        write_gguf(tmp_path / name, {}, ARRAYS)
    assert "several GGUF models, name one of them: x.gguf, y.gguf" in refused(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names are a POSIX thing")
def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.gguf")
    assert "is not a regular file" in refused(tmp_path / "x.gguf")
    os.mkfifo(tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text("{}")
    assert "is not a regular file" in refused(tmp_path)


def test_parts_of_a_tensor() -> None:
    tensor = Tensor("x", "f32", (3, 2, 4), Path("f"), 100, 96)
    assert tensor.part(2) == Tensor("x[2]", "f32", (2, 4), Path("f"), 164, 32)
    for index in (-1, 3):
        with pytest.raises(CheckpointError, match="there is no part"):
            tensor.part(index)
    with pytest.raises(CheckpointError, match="there is no part"):
        Tensor("x", "f32", (3,), Path("f"), 0, 12).part(0)


def test_rows_of_a_tensor() -> None:
    tensor = Tensor("x", "q8_0", (6, 64), Path("f"), 100, 6 * 68)
    assert tensor.rows(1, 3) == Tensor("x[1:3]", "q8_0", (2, 64), Path("f"), 168, 136)
    every_other = tensor.rows(1, 6, 2)
    assert every_other == Tensor("x[1:6:2]", "q8_0", (3, 64), Path("f"), 168, 4 * 68 + 68, pitch=136)
    assert every_other.rows(2, 3) == Tensor("x[1:6:2][2:3]", "q8_0", (1, 64), Path("f"), 440, 68, pitch=136)
    for start, stop, every in ((0, 7, 1), (3, 3, 1), (-1, 2, 1), (0, 2, 0)):
        with pytest.raises(CheckpointError, match="there are no rows"):
            tensor.rows(start, stop, every)
    with pytest.raises(CheckpointError, match="there is no part 0"):
        every_other.part(0)


TABLES = {
    "f32": (struct.pack("<2f", 0.5, -3), [0.5, -3.0]),
    "f16": (struct.pack("<2e", 0.5, -3), [0.5, -3.0]),
    "bf16": (bytes([0x00, 0x3F, 0x40, 0xC0]), [0.5, -3.0]),
    "F64": (struct.pack("<2d", 0.1, -3), [0.1, -3.0]),
    "i64": (struct.pack("<2q", 1 << 60, -3), [1 << 60, -3]),
    "U64": (struct.pack("<2Q", (1 << 64) - 1, 3), [(1 << 64) - 1, 3]),
    "I32": (struct.pack("<2i", 1 << 30, -3), [1 << 30, -3]),
    "U8": (bytes([255, 3]), [255, 3]),
}


@pytest.mark.parametrize("dtype", TABLES)
def test_the_numbers_of_a_table(tmp_path: Path, dtype: str) -> None:
    data, values = TABLES[dtype]
    (tmp_path / "x").write_bytes(b"..." + data)
    tensor = Tensor("t", dtype, (2, 1), tmp_path / "x", 3, len(data))
    assert tensor.numbers() == values
    assert Checkpoint(tmp_path, "gguf", {}, {}, {"t": tensor}).numbers("t", most=2) == values


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"dtype": "q8_0"}, "is stored as q8_0, plain numbers are needed"),
        ({"shape": (1 << 40,)}, f"holds {1 << 40} numbers, at most 4 are expected"),
        ({"offset": 4}, "was cut short"),
        ({"file": Path("/absent")}, "cannot be read: No such file"),
        ({"shape": (1,), "nbytes": 4, "offset": 8}, "holds a value that is infinite or not a number"),
    ],
)
def test_a_table_that_cannot_be_read(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    (tmp_path / "x").write_bytes(struct.pack("<3f", 1, 2, math.nan))
    tensor = replace(Tensor("t", "f32", (3,), tmp_path / "x", 0, 12), **change)
    with pytest.raises(CheckpointError, match=reason) as caught:
        tensor.numbers(most=4)
    assert "tensor 't'" in str(caught.value)


def test_block_sizes_are_written_down_once() -> None:
    for word, block, size in _TYPES.values():
        assert BLOCKS.get(word, (block, size)) == (block, size)


def test_every_broken_file_is_refused_in_one_line(tmp_path: Path) -> None:
    cases = write_corpus(tmp_path)
    assert len(cases) >= 100
    for case in cases:
        message = refused(case)
        assert str(case) in message, message
        assert len(message) < 1000 + len(str(case))
