from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colibri.compute.checkpoint import Tensor, open_checkpoint
from colibri.compute.safetensors import read_header
from colibri.errors import CheckpointError
from colibri.testing.checkpoints import seeded_weights, write_checkpoint, write_safetensors

ARRAYS = seeded_weights({f"{i}.weight": (4, 8) for i in range(7)}, 1)


def refused(folder: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_shards_with_an_index(tmp_path: Path) -> None:
    found = open_checkpoint(write_checkpoint(tmp_path, {}, ARRAYS, shards=3))
    assert set(found.tensors) == set(ARRAYS)
    assert len({tensor.file for tensor in found.tensors.values()}) == 3


def test_shards_without_an_index(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, {}, ARRAYS, shards=3)
    (tmp_path / "model.safetensors.index.json").unlink()
    assert set(open_checkpoint(tmp_path).tensors) == set(ARRAYS)
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    assert "model-00002-of-00003.safetensors: does not exist" in refused(tmp_path)


def test_one_whole_file_wins_over_others_beside_it(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, {}, ARRAYS)
    write_safetensors(tmp_path / "consolidated.safetensors", ARRAYS)
    assert open_checkpoint(tmp_path).tensor("0.weight").file.name == "model.safetensors"


def test_a_shard_that_is_listed_has_to_be_there(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, {}, ARRAYS, shards=3)
    (tmp_path / "model-00003-of-00003.safetensors").unlink()
    assert "model-00003-of-00003.safetensors: does not exist" in refused(tmp_path)


def test_a_tensor_that_two_shards_hold(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, {}, ARRAYS, shards=2)
    write_safetensors(tmp_path / "model-00002-of-00002.safetensors", ARRAYS)
    assert "is also in model-00001-of-00002.safetensors" in refused(tmp_path)


@pytest.mark.parametrize(
    ("weight_map", "message"),
    [
        ({"absent.weight": "model-00001-of-00002.safetensors"}, "tensor 'absent.weight': is listed"),
        ({"0.weight": "model-00002-of-00002.safetensors"}, "tensor '0.weight': is listed"),
        ({"0.weight": "../x.safetensors"}, "must name a .safetensors file beside it"),
        ({"0.weight": "/etc/x.safetensors"}, "must name a .safetensors file beside it"),
        ({"0.weight": "a\0.safetensors"}, "must name a .safetensors file beside it"),
        ({"0.weight": "a\n.safetensors"}, "must name a .safetensors file beside it"),
        ({"0.weight": "/etc/passwd"}, "must name a .safetensors file beside it"),
        ({"0.weight": 3}, "must name a .safetensors file beside it"),
        ({"0.weight": "a" * 300 + ".safetensors"}, "must name a .safetensors file beside it"),
        ({"0.weight": "absent.safetensors"}, "absent.safetensors: does not exist"),
        ({}, "weight_map must be an object"),
        ([], "weight_map must be an object"),
        (None, "weight_map must be an object"),
    ],
)
def test_an_index_that_lies(tmp_path: Path, weight_map: object, message: str) -> None:
    write_checkpoint(tmp_path, {}, ARRAYS, shards=2)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert message in refused(tmp_path)


TWICE = '{"weight_map": {"a": "x.safetensors", "a": "y.safetensors"}}'


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"a": ' * 100_000, '"\\ud800"', TWICE])
def test_an_index_that_is_no_index(tmp_path: Path, text: str) -> None:
    write_checkpoint(tmp_path, {}, ARRAYS, shards=2)
    (tmp_path / "model.safetensors.index.json").write_text(text)
    assert "model.safetensors.index.json: " in refused(tmp_path)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b'{"a":' * 100_000, b"1", b'{"a": %s}' % (b"9" * 5000)])
def test_a_config_that_is_no_config(tmp_path: Path, data: bytes) -> None:
    write_checkpoint(tmp_path, {}, ARRAYS)
    (tmp_path / "config.json").write_bytes(data)
    assert "config.json: " in refused(tmp_path)


@given(data=st.data())
def test_mutations_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.getbasetemp() / "mutated-safetensors"
    folder.mkdir(exist_ok=True)
    file = folder / "x.safetensors"
    raw = bytearray(write_safetensors(file, ARRAYS).read_bytes())
    header = 8 + int.from_bytes(raw[:8], "little")
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, header - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.one_of(st.none(), st.integers(0, len(raw))))
    file.write_bytes(raw[:cut])
    tensors: dict[str, Tensor] = {}
    reason = ""
    try:
        tensors = read_header(file)
    except CheckpointError as error:
        reason = str(error)
    assert "\n" not in reason
    size = file.stat().st_size
    assert all(tensor.offset > 0 and tensor.offset + tensor.nbytes <= size for tensor in tensors.values())


def test_data_may_begin_at_any_byte(tmp_path: Path) -> None:
    """Older writers do not pad the header; what reads the tensors has to cope."""
    file = write_safetensors(tmp_path / "x.safetensors", ARRAYS)
    data = file.read_bytes()
    length = int.from_bytes(data[:8], "little")
    file.write_bytes((length + 1).to_bytes(8, "little") + data[8 : 8 + length] + b" " + data[8 + length :])
    for name, tensor in read_header(file).items():
        assert tensor.offset % 2 == 1
        with file.open("rb") as stream:
            stream.seek(tensor.offset)
            assert stream.read(tensor.nbytes) == ARRAYS[name].astype("<f4").tobytes()
