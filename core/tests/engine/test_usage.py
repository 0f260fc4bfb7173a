"""Counts of chosen experts, kept from one start to the next."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colibri.engine.usage import FILE, HALF_LIFE, added, hottest, read, write

COUNTS = ((1.0, 0.0, 5.5), (0.0, 2.0))


def test_what_is_written_is_read_by_model(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "new"
    assert read(folder, "one") == ()
    write(folder, "one", COUNTS)
    write(folder, "two", ((3.0,),))
    assert read(folder, "one") == COUNTS
    assert read(folder, "two") == ((3.0,),)
    assert read(folder, "three") == ()
    assert [path.name for path in folder.iterdir()] == [FILE]
    assert not caplog.text


def test_the_models_used_last_are_remembered(tmp_path: Path) -> None:
    for number in range(12):
        write(tmp_path, str(number), COUNTS)
        write(tmp_path, "always", COUNTS)
    assert [bool(read(tmp_path, str(number))) for number in range(12)] == [False] * 5 + [True] * 7
    assert read(tmp_path, "always") == COUNTS


@given(data=st.binary(max_size=60))
def test_a_broken_file_is_ignored(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("usage")
    (folder / FILE).write_bytes(data)
    assert read(folder, "one") == ()
    write(folder, "one", COUNTS)
    assert read(folder, "one") == COUNTS


@pytest.mark.parametrize("text", ['{"models": 3}', '{"models": {"one": [["a"]]}}', "[" * 100_000])
def test_what_is_no_such_file_is_told(tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / FILE).write_text(text)
    assert read(tmp_path, "one") == ()
    assert f"{tmp_path / FILE} is ignored" in caplog.text


def test_a_folder_that_can_not_be_written_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    write(tmp_path / "file", "one", COUNTS)
    assert "can't be written" in caplog.text


def test_old_counts_fade_as_new_ones_come() -> None:
    assert added((), [[1, 2], [0, 0]]) == ((1, 2), (0, 0))
    assert added(((8.0, 4.0),), [[0, HALF_LIFE]]) == ((4.0, HALF_LIFE + 2.0),)
    assert added(((8.0, 4.0, 1.0),), [[5, 5]]) == ((5.0, 5.0),)  # another model's


def test_the_hottest_come_first() -> None:
    assert hottest([1.0, 0.0, 5.0, 1.0]) == [2, 0, 3, 1]
