"""The command line as a whole: dispatch, exit statuses, one-line errors."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

import colibri as package
from colibri import cli
from colibri.cli.commands import Commands


def test_help_lists_the_commands(colibri: Any) -> None:
    for argv in ((), ("--help",)):
        status, out, _ = colibri(*argv)
        assert status == 0
        for name in ("serve", "chat", "run", "families", "doctor", "debug"):
            assert f"\n    {name}" in out


def test_version(colibri: Any) -> None:
    status, out, _ = colibri("--version")
    assert status == 0
    assert out.startswith(f"colibri {package.__version__} (native runtime: ")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("srve",), "colibri: no command 'srve' (did you mean 'serve'?); see colibri --help\n"),
        (("serve", "--prot", "80"), "colibri: unexpected '--prot' on the command line (did you mean '--port'?)\n"),
        (("families", "extra"), "colibri: unexpected 'extra' on the command line\n"),
        (("serve", "--port", "x"), "colibri: flag --port: expected a whole number from 0 to 65535, got 'x'\n"),
        (("debug",), "colibri: debug what? One of render, parse, logits and graph; see colibri debug --help\n"),
        (("debug", "graph"), "colibri: no model given: use --model PATH\n"),
        (("debug", "render", "--variant", "x", "--file", "no"), "colibri: flag --file: no: No such file or directory\n"),
        (("serve", "--config", "no.toml"), "colibri: no.toml: no such settings file\n"),
    ],
)  # fmt: skip
def test_mistakes_are_told_in_one_line(colibri: Any, argv: tuple[str, ...], message: str) -> None:
    assert colibri(*argv) == (2, "", message)


def test_serve_without_a_model_says_how_to_get_one(colibri: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    for command in (("serve",), ("chat",), ("run", "hello")):
        status, _, err = colibri(*command)
        assert status == 2
        assert err.startswith("colibri: no model given: use --model PATH")
        assert "hf download" in err
        assert err.count("\n") == 1


def test_show_settings(colibri: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLI_KV_SLOTS", "4")
    status, out, _ = colibri("serve", "--port", "81", "--api-key", "hunter2", "--show-settings")
    assert status == 0
    lines = {line.split()[0]: line.split(maxsplit=1)[1] for line in out.splitlines()}
    assert lines["port"].split(maxsplit=1) == ["81", "flag --port"]
    assert lines["kv_slots"].split(maxsplit=1) == ["4", "variable COLI_KV_SLOTS"]
    assert "hunter2" not in out


def test_unknown_variables_are_warned_about(colibri: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLI_PROT", "80")
    status, _, err = colibri("families")
    assert status == 0
    assert err == "colibri: warning: variable COLI_PROT is not a setting (did you mean 'COLI_PORT'?)\n"


def failing(error: BaseException) -> Any:
    class Module:
        @staticmethod
        def add(commands: Commands) -> None:
            def run(args: object) -> int:
                raise error

            commands.add("fail", run, "fail")

    return Module


def test_internal_errors_show_no_traceback_unless_asked(colibri: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "_CORE", (failing(RuntimeError("boom")),))
    assert colibri("fail") == (2, "", "colibri: internal error: RuntimeError: boom (COLI_DEBUG=1 shows where)\n")
    monkeypatch.setenv("COLI_DEBUG", "1")
    with pytest.raises(RuntimeError, match="boom"):
        colibri("fail")


def test_an_interrupt_is_quiet(colibri: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "_CORE", (failing(KeyboardInterrupt()),))
    assert colibri("fail") == (130, "", "")


def test_a_reader_that_leaves_is_no_error() -> None:
    script = "import sys; from colibri.cli import main; sys.exit(main(['serve', '--show-settings']))"
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, b"")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_are_stood_in_for(closed: str, tmp_path: Any) -> None:
    """The numbers of the standard streams must not go to files and sockets of the program."""
    script = (
        "import os, sys, colibri.cli as cli\n"
        "assert cli.main(['serve', '--show-settings']) == 0\n"
        "print('out', flush=True), print('err', file=sys.stderr, flush=True)\n"
        f"open({str(tmp_path / 'number')!r}, 'w').write(str(os.open(os.devnull, os.O_RDONLY)))\n"
    )
    command = f'exec {sys.executable} -c "$0" {closed}'
    done = subprocess.run(["sh", "-c", command, script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0
    assert ("out\n" in done.stdout) == (">&-" not in closed.replace("2>&-", ""))
    assert done.stderr == ("" if "2>&-" in closed else "err\n")
    assert int((tmp_path / "number").read_text()) > 2


def test_characters_that_a_terminal_lacks_are_replaced() -> None:
    script = "from colibri.cli import main; main(['--version']); print('caf\\xe9 \\U0001f426!')"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        timeout=60,
        check=True,
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
    )
    assert done.stdout.endswith(b"caf\xe9 ?!\n")


def test_an_output_without_room_is_told_in_one_line() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "colibri", "--version"], stdout=full, stderr=subprocess.PIPE, timeout=60, check=False
        )
    assert (done.returncode, done.stderr) == (2, b"colibri: No space left on device\n")


def test_python_m_colibri() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "colibri", "--help"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0
    assert done.stdout.startswith("usage: colibri")


def test_commands_import_nothing_heavy_before_they_run() -> None:
    script = """
import sys
from colibri.cli import main
main(["families"])
heavy = {"tokenizers", "uvloop", "httptools", "psutil", "jsonschema_rs", "prometheus_client", "rich", "prompt_toolkit"}
print(sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_plugins_add_commands(colibri: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "singer.py"
    path.write_text(
        "from colibri import hookimpl\n@hookimpl\ndef add_commands(commands):\n"
        "    commands.add('sing', lambda args: print('la') or 3, 'sing a song')\n"
    )
    monkeypatch.setenv("COLI_PLUGIN", str(path))
    assert colibri("sing") == (3, "la\n", "")
    assert "sing a song" in colibri("--help")[1]
