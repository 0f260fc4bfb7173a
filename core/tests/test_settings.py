"""Settings: precedence, sources, and errors that name where a value came from."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from colibri.errors import SettingError
from colibri.settings import ABOUT, Settings, add_flags, load_settings

FLAGS = {"port": "1"}
VARIABLES = {"COLI_PORT": "2"}
FILE = "port = 3\n"


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write(text: str) -> Path:
        (tmp_path / "colibri.toml").write_text(text, encoding="utf-8")
        return tmp_path

    return write


@pytest.mark.parametrize(
    ("flags", "variables", "file", "port", "source"),
    [
        (FLAGS, VARIABLES, FILE, 1, "flag --port"),
        ({}, VARIABLES, FILE, 2, "variable COLI_PORT"),
        ({}, {}, FILE, 3, "port in colibri.toml"),
        ({}, {}, "", 8000, "default"),
        (FLAGS, {}, FILE, 1, "flag --port"),
        (FLAGS, VARIABLES, "", 1, "flag --port"),
    ],
)
def test_precedence(write: Any, flags: Any, variables: Any, file: str, port: int, source: str) -> None:
    resolved = load_settings(flags, variables, write(file))
    assert (resolved.settings.port, resolved.sources["port"]) == (port, source)
    assert resolved.settings.host == "127.0.0.1"
    assert resolved.sources["host"] == "default"


def test_no_file_is_no_error(tmp_path: Path) -> None:
    assert load_settings({}, {}, tmp_path).settings == Settings()


@pytest.mark.parametrize("name", ABOUT)
def test_every_setting_has_help_a_flag_a_variable_and_a_key(name: str, write: Any) -> None:
    about = ABOUT[name]
    assert about.help
    parser = argparse.ArgumentParser()
    add_flags(parser)
    samples: dict[type, tuple[list[str], str, str, Any]] = {
        int: ([about.flag, "5000"], "5000", "5000", 5000),
        float: ([about.flag, "1.5"], "1.5", "1.5", 1.5),
        str: ([about.flag, "x"], "x", '"x"', "x"),
        bool: ([about.flag], "true", "true", True),
        tuple: ([about.flag, "a", about.flag, "b"], "a, b", '["a", "b"]', ("a", "b")),
    }
    flags, variable, key, value = samples[about.kind]
    if name in ("kv_slots", "threads", "io_threads", "lookup_drafts", "mtp_drafts"):
        flags, variable, key, value = [about.flag, "5"], "5", "5", 5
    if name == "isa":
        flags, variable, key, value = [about.flag, "avx2"], "avx2", '"avx2"', "avx2"
    if name == "kv_disk":
        flags, variable, key, value = [about.flag, "q8"], "q8", '"q8"', "q8"
    namespace = vars(parser.parse_args(flags))
    nowhere = write("")
    assert getattr(load_settings(namespace, {}, nowhere).settings, name) == value
    assert getattr(load_settings({}, {about.variable: variable}, nowhere).settings, name) == value
    resolved = load_settings({}, {}, write(f"{name} = {key}\n"))
    assert getattr(resolved.settings, name) == value
    assert resolved.sources[name] == f"{name} in colibri.toml"


def test_switches_can_be_turned_off_by_flag(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    namespace = vars(parser.parse_args(["--no-continue-assistant", "--no-think"]))
    settings = load_settings(namespace, {"COLI_THINK": "1"}, tmp_path).settings
    assert settings.continue_assistant is False
    assert settings.think is False


@pytest.mark.parametrize(
    ("variables", "saved", "source"),
    [
        ({}, True, "default"),
        ({"KVSAVE": "0"}, False, "variable KVSAVE"),
        ({"KVSAVE": ""}, True, "default"),
        ({"KVSAVE": "0", "COLI_KV_SAVE": "1"}, True, "variable COLI_KV_SAVE"),
    ],
)
def test_a_variable_of_another_name(variables: Any, saved: bool, source: str, tmp_path: Path) -> None:
    resolved = load_settings({}, variables, tmp_path)
    assert (resolved.settings.kv_save, resolved.sources["kv_save"]) == (saved, source)


@pytest.mark.parametrize(
    ("flags", "variables", "file", "message"),
    [
        ({"port": "eighty"}, {}, "", "flag --port: expected a whole number from 0 to 65535, got 'eighty'"),
        ({}, {"COLI_PORT": "70000"}, "", "variable COLI_PORT: expected a whole number from 0 to 65535, got '70000'"),
        ({}, {}, "port = -1", "port in colibri.toml: expected a whole number from 0 to 65535, got -1"),
        ({}, {}, 'port = "80"', "port in colibri.toml: expected a whole number from 0 to 65535, got the string '80'"),
        ({}, {}, "port = 80.5", "port in colibri.toml: expected a whole number from 0 to 65535, got 80.5"),
        ({}, {"COLI_KV_SLOTS": "17"}, "", "variable COLI_KV_SLOTS: expected a whole number from 1 to 16, got '17'"),
        ({}, {"COLI_TEMP": "nan"}, "", "variable COLI_TEMP: expected a number from 0 to 2, got 'nan'"),
        (
            {"queue_timeout": "0"},
            {},
            "",
            "flag --queue-timeout: expected a number of seconds above 0, at most a year, got '0'",
        ),
        (
            {},
            {},
            "queue_timeout = inf",
            "queue_timeout in colibri.toml: expected a number of seconds above 0, at most a year, got inf",
        ),
        ({}, {"COLI_THINK": "maybe"}, "", "variable COLI_THINK: expected true or false, got 'maybe'"),
        ({"kv_disk": "q4"}, {}, "", "flag --kv-disk: expected f32, f16 or q8, got 'q4'"),
        ({}, {"KVSAVE": "2"}, "", "variable KVSAVE: expected true or false, got '2'"),
        ({"isa": "mmx"}, {}, "", "flag --isa: expected scalar, avx2 or avx512, got 'mmx'"),
        ({}, {}, 'plugin = "a.py"', "plugin in colibri.toml: expected a list of strings, got the string 'a.py'"),
        ({}, {}, "api_key = 5", "api_key in colibri.toml: expected a string, got a secret"),
        ({"api_key": ""}, {}, "", "flag --api-key: expected a string, got an empty one"),
        ({}, {}, 'host = ""', "host in colibri.toml: expected a string, got an empty one"),
        ({"model": ""}, {"COLI_MODEL": "m"}, "", "flag --model: expected a string, got an empty one"),
        ({}, {}, "prot = 1", "colibri.toml: unknown key 'prot' (did you mean 'port'?)"),
        ({}, {}, "kv-slots = 1", "colibri.toml: unknown key 'kv-slots' (did you mean 'kv_slots'?)"),
        ({}, {}, "zzz = 1", "colibri.toml: unknown key 'zzz'"),
    ],
)
def test_errors_name_the_source(write: Any, flags: Any, variables: Any, file: str, message: str) -> None:
    with pytest.raises(SettingError) as caught:
        load_settings(flags, variables, write(file))
    assert str(caught.value) == message


def test_a_broken_file_is_named(write: Any, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"colibri.toml: not valid TOML: .*line 1"):
        load_settings({}, {}, write("port = = 1"))
    (tmp_path / "colibri.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(SettingError, match=r"colibri.toml: cannot be read"):
        load_settings({}, {}, tmp_path)


def test_a_named_file_must_exist_and_is_named_in_errors(tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    with pytest.raises(SettingError, match=r"other.toml: no such settings file"):
        load_settings({"config": str(other)}, {})
    other.write_text("port = 4", encoding="utf-8")
    assert load_settings({"config": str(other)}, {}).sources["port"] == f"port in {other}"
    assert load_settings({}, {"COLI_CONFIG": str(other)}).settings.port == 4


def test_unknown_variables_are_warned_about(tmp_path: Path) -> None:
    environ = {"COLI_PROT": "1", "COLI_DEBUG": "1", "COLIBRI_X": "1", "COLI_PORT": "1"}
    assert load_settings({}, environ, tmp_path).warnings == (
        "variable COLI_PROT is not a setting (did you mean 'COLI_PORT'?)",
    )


def test_empty_variables(tmp_path: Path) -> None:
    resolved = load_settings({}, {"COLI_API_KEY": "", "COLI_PORT": "", "COLI_PLUGINS": ""}, tmp_path)
    assert resolved.settings.api_key is None
    assert resolved.settings.port == 8000
    assert resolved.settings.plugins == ()
    assert resolved.sources["api_key"] == "default"


def test_secrets_are_masked(tmp_path: Path) -> None:
    text = "\n".join(load_settings({"api_key": "hunter2"}, {}, tmp_path).lines())
    assert "hunter2" not in text
    assert "api_key             ********" in text


def test_lines_show_every_setting_and_its_source(write: Any) -> None:
    lines = load_settings(FLAGS, {"COLI_THINK": "no"}, write("kv_slots = 4")).lines()
    assert [line.split()[0] for line in lines] == list(ABOUT)
    by_name = {line.split()[0]: " ".join(line.split()[1:]) for line in lines}
    assert by_name["port"] == "1 flag --port"
    assert by_name["think"] == "false variable COLI_THINK"
    assert by_name["kv_slots"] == "4 kv_slots in colibri.toml"
    assert by_name["model"] == "(unset) default"
