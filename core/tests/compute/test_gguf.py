from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colibri.compute import gguf
from colibri.compute.checkpoint import Tensor, open_checkpoint
from colibri.errors import CheckpointError
from colibri.testing.checkpoints import seeded_weights, write_gguf

ARRAYS = seeded_weights({"a.weight": (4, 256), "b.weight": (256,), "c.weight": (3, 8, 256)}, 1)
FACTS = {
    "general.architecture": "none",
    "flag": True,
    "small": 7,
    "below": -7,
    "large": 1 << 40,
    "real": 0.5,
    "text": "ünï",
    "texts": ["a", "", "ß"],
    "numbers": [1, 2, 3],
    "reals": [0.5, 1.5],
    "flags": [True, False],
    "nested": [[1, 2], [3]],
    "empty": [],
}


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("alignment", [8, 32, 4096])
def test_what_is_written_is_read(tmp_path: Path, version: int, alignment: int) -> None:
    file = write_gguf(tmp_path / "x.gguf", FACTS, ARRAYS, dtype="q6_k", version=version, alignment=alignment)
    metadata, tensors = gguf.read_header(file)
    metadata.pop("general.alignment", None)
    assert metadata == FACTS
    assert {name: tensor.shape for name, tensor in tensors.items()} == {name: array.shape for name, array in ARRAYS.items()}
    assert [tensor.dtype for tensor in tensors.values()] == ["q6_k", "f32", "q6_k"]
    assert all(tensor.offset % alignment == 0 for tensor in tensors.values())
    stored = tensors["b.weight"]
    values = np.frombuffer(file.read_bytes()[stored.offset : stored.offset + stored.nbytes], "<f4")
    assert (values == ARRAYS["b.weight"]).all()


def test_every_scalar_type(tmp_path: Path) -> None:
    values = [(0, "B", 200), (1, "b", -100), (2, "H", 60000), (3, "h", -30000), (4, "I", 1 << 31), (5, "i", -5),
              (6, "f", 0.25), (7, "B", 1), (10, "Q", (1 << 64) - 1), (11, "q", -(1 << 63)), (12, "d", 0.1)]  # fmt: skip
    pairs = b"".join(
        struct.pack("<Q", 2) + f"k{kind % 10}".encode() + struct.pack("<I" + letter, kind, value)
        for kind, letter, value in values[:8]
    )
    pairs += b"".join(
        struct.pack("<Q", 3) + f"k{kind}".encode() + struct.pack("<I" + letter, kind, value)
        for kind, letter, value in values[8:]
    )
    file = tmp_path / "x.gguf"
    file.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, len(values)) + pairs)
    metadata, _ = gguf.read_header(file)
    assert metadata == {f"k{kind}": value for kind, _, value in values}
    assert metadata["k7"] is True


def test_a_type_that_cannot_be_computed_with_keeps_its_word(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "x.gguf", {}, {"a": ARRAYS["a.weight"]}, dtype="q4_k")
    raw = file.read_bytes()
    at = raw.index(struct.pack("<IQQIQ", 2, 256, 4, 12, 0)) + 20
    for number, word in ((19, "iq1_s"), (99, "ggml type 99")):
        file.write_bytes(raw[:at] + struct.pack("<I", number) + raw[at + 4 :])
        assert open_checkpoint(file).tensor("a").dtype == word


def split(folder: Path, count: int = 3, **facts: object) -> list[Path]:
    names = list(ARRAYS)
    found = []
    for i in range(count):
        file = folder / f"m-{i + 1:05d}-of-{count:05d}.gguf"
        own = {"split.no": i, "split.count": count, "split.tensors.count": len(names), **facts}
        write_gguf(file, {**(FACTS if i == 0 else {}), **own}, {name: ARRAYS[name] for name in names[i::count]})
        found.append(file)
    return found


def test_split_files_are_one_model(tmp_path: Path) -> None:
    files = split(tmp_path)
    for path in (files[0], files[2], tmp_path):
        found = open_checkpoint(path)
        assert set(found.tensors) == set(ARRAYS)
        assert found.metadata["text"] == "ünï"
    files[1].unlink()
    with pytest.raises(CheckpointError, match=r"m-00002-of-00003\.gguf: does not exist"):
        open_checkpoint(files[0])


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"split.no": 5}, "is not shard 2 of 3"),
        ({"split.count": 2}, "split.count is 2, its name says 3"),
        ({"split.count": "3"}, "split.count is '3', its name says 3"),
        ({"split.tensors.count": 4}, "split.tensors.count is 4, the shards hold 3"),
    ],
)
def test_split_files_that_do_not_belong_together(tmp_path: Path, facts: dict[str, object], message: str) -> None:
    files = split(tmp_path, **facts)
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(files[0])


def test_a_split_file_that_holds_a_tensor_again(tmp_path: Path) -> None:
    files = split(tmp_path)
    write_gguf(files[1], {"split.no": 1, "split.count": 3}, ARRAYS)
    with pytest.raises(CheckpointError, match=r"tensor 'a\.weight': is also in m-00001-of-00003\.gguf"):
        open_checkpoint(files[0])


def test_memory_is_bounded_whatever_a_file_claims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf, "MAX_ITEMS", 10)
    file = write_gguf(tmp_path / "x.gguf", {"a": [1] * 6, "b": [2] * 6}, {})
    with pytest.raises(CheckpointError, match="metadata 'b' brings the array items to more than 10"):
        open_checkpoint(file)
    monkeypatch.setattr(gguf, "MAX_HEADER", 100)
    with pytest.raises(CheckpointError, match="its header is longer than 100 bytes"):
        open_checkpoint(write_gguf(tmp_path / "y.gguf", {"a": "x" * 200}, {}))


@given(data=st.data())
def test_mutations_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.getbasetemp() / "mutated-gguf"
    folder.mkdir(exist_ok=True)
    file = folder / "x.gguf"
    raw = bytearray(write_gguf(file, FACTS, ARRAYS, dtype="q8_0").read_bytes())
    header = raw.index(b"c.weight") + 64
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, header))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.one_of(st.none(), st.integers(0, len(raw))))
    file.write_bytes(raw[:cut])
    tensors: dict[str, Tensor] = {}
    reason = ""
    try:
        _, tensors = gguf.read_header(file)
    except CheckpointError as error:
        reason = str(error)
    assert "\n" not in reason
    size = file.stat().st_size
    assert all(tensor.offset > 0 and tensor.offset + tensor.nbytes <= size for tensor in tensors.values())
