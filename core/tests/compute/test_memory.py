"""What may still be taken, by machine and control groups."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from colibri.compute.budget import no_room, room_for_model, split
from colibri.compute.memory import available, total

MACHINE = SimpleNamespace(total=1000, available=700)


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psutil.virtual_memory", lambda: MACHINE)


def group(root: Path, path: str, **files: str) -> None:
    for name, text in files.items():
        place = root / "sys/fs/cgroup" / path.lstrip("/") / name.replace("_", ".", 1)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)


def in_group(root: Path, line: str) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(line)
    return root


def test_without_groups_it_is_what_the_machine_has(tmp_path: Path) -> None:
    assert (available(tmp_path), total(tmp_path)) == (700, 1000)


def test_the_tightest_of_all_groups_around_counts(tmp_path: Path) -> None:
    in_group(tmp_path, "0::/a/b\n")
    group(tmp_path, "a/b", memory_max="max\n", memory_current="90\n")
    group(
        tmp_path, "a", memory_max="300\n", memory_current="120\n", memory_stat="anon 20\ninactive_file 60\nactive_file 30\n"
    )
    group(tmp_path, "", memory_max="900\n", memory_current="500\n", memory_stat="inactive_file 0\n")
    assert (available(tmp_path), total(tmp_path)) == (270, 300)


def test_version_1_has_other_names(tmp_path: Path) -> None:
    in_group(tmp_path, "5:cpu:/\n4:memory:/x\n0::/\n")
    place = tmp_path / "sys/fs/cgroup/memory/x"
    place.mkdir(parents=True)
    (place / "memory.limit_in_bytes").write_text("400\n")
    (place / "memory.usage_in_bytes").write_text("390\n")
    (place / "memory.stat").write_text("inactive_file 1\ntotal_inactive_file 100\ntotal_active_file 50\n")
    (place.parent / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    (place.parent / "memory.usage_in_bytes").write_text("5\n")
    assert (available(tmp_path), total(tmp_path)) == (160, 400)


def test_in_a_container_the_own_group_is_what_is_mounted(tmp_path: Path) -> None:
    in_group(tmp_path, "0::/docker/0123\n")
    group(tmp_path, "", memory_max="500\n", memory_current="700\n")
    assert (available(tmp_path), total(tmp_path)) == (0, 500)


def test_a_wish_is_cut_to_what_is_free(caplog: pytest.LogCaptureFixture) -> None:
    assert room_for_model(0) == 616
    assert room_for_model(500) == 500
    assert not caplog.text
    assert room_for_model(10**9) == 700
    assert "--ram 1.0 is more than is free" in caplog.text


def test_each_model_gets_what_one_token_takes_and_its_share_of_the_rest() -> None:
    assert split(100, [10], [5000]) == [100]
    assert split(60, [10, 10], [300, 100]) == [40, 20]
    with pytest.raises(ValueError, match="do not hold 20"):
        split(19, [10, 10], [300, 100])


def test_the_refusal_has_the_numbers_and_the_way_out() -> None:
    error = no_room(2 * 10**9, 3 * 10**9, 5 * 10**8, 2 * 10**9)
    assert error.message.startswith("--ram 2 does not hold this model: it needs 3.50 GB, 3.00 GB for weights")
    assert "0.50 GB for the experts of one token; raise it" in error.message
    assert "free memory, 2.00 GB," in no_room(2 * 10**9, 3 * 10**9, 5 * 10**7, 0).message
