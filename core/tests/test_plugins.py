"""The loader: what is found, what is refused and why, and that one bad plugin harms nobody but itself."""

from __future__ import annotations

import asyncio
import inspect
import pkgutil
import re
import textwrap
from pathlib import Path
from typing import Any, Protocol

import pytest

from colibri import hookimpl, hookspecs
from colibri.api.app import App
from colibri.chat.conversation import Conversation, TextPart, Turn, TurnOptions
from colibri.compute import blocks
from colibri.compute.checkpoint import Checkpoint
from colibri.compute.operations import Operations
from colibri.discovery import PluginRow
from colibri.errors import CheckpointError, PluginError, SettingError
from colibri.family import Capabilities, Variant
from colibri.hookspecs import RequestRecord
from colibri.plugins import Plugins, load_plugins
from colibri.settings import Settings

FAMILY = """
from colibri import hookimpl
from colibri.family import Capabilities, Variant

class Fake:
    name = "{name}"
    api = 1
    def variants(self): return (Variant("{name}-1", "{name} one", Capabilities()),)
    def variant_for(self, checkpoint):
        return self.variants()[0] if checkpoint.model_type == "{name}" else None
    def tokenizer(self, checkpoint): ...
    def sampling(self, variant, options): ...
    def render(self, variant, conversation, options): return "{name} renders"
    def output(self, variant, conversation, options): return "{name} parses"
    def stops(self, variant, options): ...
    def graph(self, checkpoint, g): ...

@hookimpl
def register_families(register):
    register(Fake())
"""


class Install(Protocol):
    def __call__(
        self, name: str, code: str = ..., *, dist: str | None = ..., version: str = ..., requires: str = ...
    ) -> None: ...


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a plugin distribution with real metadata where importlib finds it."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(
        name: str, code: str = FAMILY, *, dist: str | None = None, version: str = "1.2", requires: str = "colibri>=1.0,<2"
    ) -> None:
        dist = dist or f"colibri-{name}"
        module = f"{dist.replace('-', '_')}_{tmp_path.name.replace('-', '_')}"
        (tmp_path / f"{module}.py").write_text(code.replace("{name}", name), encoding="utf-8")
        info = tmp_path / f"{dist.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        head = f"Metadata-Version: 2.1\nName: {dist}\nVersion: {version}\n"
        (info / "METADATA").write_text(head + f"Requires-Dist: {requires}\n", encoding="utf-8")
        (info / "entry_points.txt").write_text(f"[colibri]\n{name} = {module}\n", encoding="utf-8")

    return install


def load(*names: str, **settings: Any) -> Plugins:
    """The plugins with these names and no others, whatever else is installed."""
    return load_plugins(Settings(plugins=names, **settings))


def reason(plugins: Plugins, name: str) -> str:
    [row] = [row for row in plugins.broken() if row.name == name]
    assert row.error is not None
    assert "\n" not in row.error
    return row.error


def checkpoint(model_type: str) -> Checkpoint:
    return Checkpoint(Path("/models/m"), "safetensors", {"model_type": model_type}, {}, {})


# What is found.


def test_an_installed_family_is_found(install: Install) -> None:
    install("heron")
    plugins = load("heron")
    [row] = plugins.families()
    assert (row.name, row.origin.distribution, row.origin.version) == ("heron", "colibri-heron", "1.2")
    assert [variant.name for variant in row.variants] == ["heron-1"]
    assert plugins.rows() == (PluginRow("heron", "colibri-heron", "1.2", families=("heron",)),)
    family, variant = plugins.family_for(checkpoint("heron"))
    assert (family.name, variant.name) == ("heron", "heron-1")
    assert plugins.variant("heron-1") == (family, variant)
    assert plugins.family("heron") is family


def test_plugins_can_be_chosen_by_entry_point_or_distribution(install: Install) -> None:
    for name in ("heron", "robin", "wren"):
        install(name)
    assert [row.name for row in load("heron", "colibri-robin").families()] == ["heron", "robin"]
    assert [row.name for row in load("heron", "wren", disable_plugins=("colibri-wren",)).families()] == ["heron"]
    assert load().rows() == ()
    everything = {row.name for row in load_plugins(Settings(disable_plugins=("robin",))).families()}
    assert {"heron", "wren"} <= everything
    assert "robin" not in everything


def test_asking_for_a_plugin_that_is_not_installed(install: Install) -> None:
    with pytest.raises(SettingError, match=r"no plugin 'dodo' is installed \(flag --only-plugin, variable COLI_PLUGINS\)"):
        load("dodo")


def test_a_plugin_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "my family.py"
    path.write_text(FAMILY.replace("{name}", "finch"), encoding="utf-8")
    plugins = load(plugin=(str(path),))
    [row] = plugins.families()
    assert (row.name, row.origin.distribution, row.origin.origin) == ("finch", None, str(path))


def test_files_that_are_no_plugins(tmp_path: Path) -> None:
    broken, missing = tmp_path / "broken.py", tmp_path / "missing.py"
    broken.write_text("1 +", encoding="utf-8")
    plugins = load(plugin=(str(broken), str(missing)))
    assert reason(plugins, "broken").startswith("SyntaxError: ")
    assert reason(plugins, "missing") == "no such file"


def test_a_file_named_like_a_plugin(install: Install, tmp_path: Path) -> None:
    install("heron")
    path = tmp_path / "heron.py"
    path.write_text(FAMILY.replace("{name}", "finch"), encoding="utf-8")
    plugins = load("heron", plugin=(str(path),))
    assert [row.name for row in plugins.families()] == ["heron"]
    assert reason(plugins, "heron") == "another plugin is named 'heron'; rename the file"


# What is refused, each with its reason, while the others go on.

BROKEN = {
    "import": ("import no_such_module_at_all", "ModuleNotFoundError: No module named 'no_such_module_at_all'"),
    "raises": ("raise RuntimeError('first line\\nsecond line')", "RuntimeError: first line"),
    "exits": ("import sys; sys.exit(3)", "SystemExit: 3"),
    "misspelt": (
        "from colibri import hookimpl\n@hookimpl\ndef register_familys(register): ...",
        "unknown hook 'register_familys' (did you mean 'register_families'?)",
    ),
    "arguments": (
        "from colibri import hookimpl\n@hookimpl\ndef register_families(registrar): ...",
        "{'registrar'} are declared in the hookimpl but can not be found in the hookspec",
    ),
    "register": (
        "from colibri import hookimpl\n@hookimpl\ndef register_families(register): raise KeyError('weights')",
        "KeyError: 'weights'",
    ),
    "api": (FAMILY.replace("api = 1", "api = 2"), "family 'api' is written for family API 2; colibri 1.0.0 supports 1"),
    "parts": (FAMILY.replace("def graph", "def grph").replace("def stops", "def stps"), "family 'parts' lacks stops, graph"),
    "nameless": (FAMILY.replace('name = "{name}"\n    api', "api", 1), "family 'Fake' has no name"),
    "variants": (FAMILY.replace("return (Variant", "return 1 / 0, (Variant"), "ZeroDivisionError: division by zero"),
    "single": (
        FAMILY.replace("Capabilities()),)", "Capabilities()))"),
        "variants that are no sequence of colibri.family.Variant",
    ),
    "claims": (
        FAMILY.replace("Capabilities())", "Capabilities(tools='yes'))"),
        "family 'claims', variant 'claims-1': Invalid enum value 'yes' - at `$.capabilities.tools`",
    ),
    "deaf": (
        FAMILY.replace("Capabilities())", "Capabilities(inputs=('text', 'audio')))"),
        "family 'deaf' claims audio input and lacks encode",
    ),
    "headless": (
        FAMILY.replace("Capabilities())", "Capabilities(drafts='mtp'))"),
        "family 'headless' claims drafts and lacks draft",
    ),
    "titled": (
        FAMILY.replace('"{name}-1"', '"Heron 1"'),
        "variant 'Heron 1': the name must be lower case and without blanks",
    ),
    "class": (FAMILY.replace("Fake())", "Fake)"), "family 'class' is a class; register an object of it"),
    "hookless": (FAMILY.replace("@hookimpl", ""), "it has no hooks; mark its functions with @hookimpl"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_plugin_becomes_a_row(name: str, install: Install) -> None:
    code, message = BROKEN[name]
    install(name, code)
    install("heron")
    plugins = load(name, "heron")
    assert message in reason(plugins, name)
    assert [row.name for row in plugins.families()] == ["heron"]
    assert plugins.family_for(checkpoint("heron"))[0].name == "heron"
    with pytest.raises(PluginError) as caught:
        plugins.family_for(checkpoint("other"))
    assert f"Plugin {name!r} (colibri-{name} 1.2) is installed but broken: " in str(caught.value)


def test_a_plugin_for_another_core_is_not_even_imported(install: Install) -> None:
    install("early", "raise SystemError('imported')", requires="colibri<1,>=0.3")
    install("late", "raise SystemError('imported')", requires="colibri (>=2.0)")
    plugins = load("early", "late")
    assert reason(plugins, "early") == "it needs colibri <1,>=0.3, and this is colibri 1.0.0"
    assert reason(plugins, "late") == "it needs colibri >=2.0, and this is colibri 1.0.0"


def test_two_plugins_of_one_name(install: Install) -> None:
    install("heron")
    install("heron", dist="colibri-other")
    plugins = load("heron")
    assert plugins.families() == ()
    assert [row.error for row in plugins.broken()] == [
        "its name is used by both colibri-heron and colibri-other; uninstall one of them"
    ] * 2


def test_two_plugins_with_one_family(install: Install) -> None:
    install("heron")
    install("grey", FAMILY.replace("{name}", "heron"))
    plugins = load("heron", "grey")
    assert plugins.families() == ()
    for name in ("heron", "grey"):
        message = reason(plugins, name)
        assert message.startswith("family 'heron' is registered by both ")
        assert "colibri-heron 1.2" in message
        assert "colibri-grey 1.2" in message
    assert load("heron", "grey", disable_plugins=("grey",)).family("heron")


def test_two_families_with_one_variant_name(install: Install) -> None:
    install("heron")
    install("robin", FAMILY.replace('"{name}-1"', '"heron-1"'))
    with pytest.raises(PluginError, match=r"'heron-1' is claimed by heron \(colibri-heron 1.2\) and robin"):
        load("heron", "robin").variant("heron-1")


# Replacing a family, whole or in parts.

REPLACEMENT = """
from colibri import hookimpl

class Parts:
    api = 1
    def render(self, variant, conversation, options): return "another prompt"

@hookimpl
def register_families(register):
    register(Parts(), replace="heron")
"""


def test_replacing_one_part_keeps_the_others(install: Install) -> None:
    install("heron")
    install("aaa", REPLACEMENT)  # sorts before what it replaces: order must not matter
    plugins = load("heron", "aaa")
    assert plugins.broken() == ()
    family: Any = plugins.family("heron")
    assert family.render(None, None, None) == "another prompt"
    assert family.output(None, None, None) == "heron parses"
    [row] = plugins.families()
    assert row.origin.distribution == "colibri-aaa"


def test_a_replacement_needs_what_it_replaces(install: Install) -> None:
    install("swap", REPLACEMENT)
    assert reason(load("swap"), "swap") == "replaces family 'heron', which no usable plugin registers"


def test_two_replacements_of_one_family(install: Install) -> None:
    install("heron")
    install("swap", REPLACEMENT)
    install("swop", REPLACEMENT)
    plugins = load("heron", "swap", "swop")
    assert "is replaced by both" in reason(plugins, "swap")
    assert "is replaced by both" in reason(plugins, "swop")
    family: Any = plugins.family("heron")
    assert family.render(None, None, None) == "heron renders"


# Choosing a family.


class Fake:
    """A family for what the test says it knows."""

    api = 1

    def __init__(self, name: str, knows: Any) -> None:
        self.name = name
        self._knows = knows

    def variants(self) -> tuple[Variant, ...]:
        return (Variant(f"{self.name}-1", self.name, Capabilities()),)

    def variant_for(self, checkpoint: Checkpoint) -> Variant | None:
        answer = self._knows(checkpoint)
        if isinstance(answer, Exception):
            raise answer
        return self.variants()[0] if answer else None

    def tokenizer(self, checkpoint: Checkpoint) -> Any: ...
    def sampling(self, variant: Variant, options: Any) -> Any: ...
    def render(self, variant: Variant, conversation: Any, options: Any) -> Any: ...
    def output(self, variant: Variant, conversation: Any, options: Any) -> Any: ...
    def stops(self, variant: Variant, options: Any) -> Any: ...
    def graph(self, checkpoint: Checkpoint, g: Any) -> None: ...


def knows(*types: str) -> Any:
    return lambda checkpoint: checkpoint.model_type in types


def test_no_family_for_a_checkpoint() -> None:
    with pytest.raises(PluginError) as caught:
        Plugins.of(Fake("wren", knows("wren"))).family_for(checkpoint("dodo"))
    assert str(caught.value) == (
        "/models/m: no installed plugin serves model type 'dodo'. Installed: wren (given). "
        "A plugin for it would be called colibri-dodo: if there is one, and you trust it, pip install colibri-dodo."
    )
    with pytest.raises(PluginError, match="Installed: no family plugin at all"):
        Plugins().family_for(checkpoint("dodo"))


@pytest.mark.parametrize(
    ("model_type", "name"),
    [("dodo_v4_moe", "dodo"), ("dodo3_5_text", "dodo"), ("Dodo2", "dodo"), ("dodo-linear", "dodo"), ("dodo.x", "dodo")],
)
def test_a_plugin_that_is_not_installed_is_called_for_the_first_word_of_the_model_type(model_type: str, name: str) -> None:
    with pytest.raises(PluginError, match=f"would be called colibri-{name}: .* pip install colibri-{name}\\.$"):
        Plugins().family_for(checkpoint(model_type))


@pytest.mark.parametrize("model_type", ["", "3d", "ümlaut", "--index-url=x", "a", " ", "\n"])
def test_a_model_type_without_a_word_makes_no_name(model_type: str) -> None:
    with pytest.raises(PluginError) as caught:
        Plugins().family_for(checkpoint(model_type))
    assert str(caught.value).endswith("Install the plugin for it: they are packages named colibri-<family>.")
    assert "\n" not in str(caught.value)


def test_a_long_model_type_is_cut_short() -> None:
    with pytest.raises(PluginError) as caught:
        Plugins().family_for(checkpoint("dodo" * 1000))
    assert len(str(caught.value)) < 400


def test_an_installed_plugin_is_never_said_to_be_missing(install: Install) -> None:
    install("heron")
    install("robin", "import no_such_module_at_all")
    plugins = load("heron", "robin")
    with pytest.raises(PluginError) as caught:
        plugins.family_for(checkpoint("heron_v2"))
    assert str(caught.value).endswith(
        "colibri-heron is installed, perhaps a later version of it serves this model: pip install --upgrade colibri-heron."
    )
    with pytest.raises(PluginError) as caught:
        plugins.family_for(checkpoint("robin"))
    assert "Plugin 'robin' (colibri-robin 1.2) is installed but broken" in str(caught.value)
    assert "would be called" not in str(caught.value)
    with pytest.raises(PluginError, match=r"colibri-robin is installed but was left out: see --only-plugin and"):
        load("heron").family_for(checkpoint("robin"))


def test_two_families_for_a_checkpoint() -> None:
    plugins = Plugins.of(Fake("wren", knows("bird")), Fake("robin", knows("bird")))
    with pytest.raises(PluginError, match=r"claimed by robin \(given\) and wren \(given\)"):
        plugins.family_for(checkpoint("bird"))


def test_a_family_that_fails_on_a_foreign_checkpoint_harms_nobody() -> None:
    plugins = Plugins.of(Fake("wren", lambda _: KeyError("x")), Fake("robin", knows("bird")))
    assert plugins.family_for(checkpoint("bird"))[0].name == "robin"
    with pytest.raises(PluginError, match=r"family wren \(given\) failed on /models/m: KeyError: 'x'"):
        plugins.family_for(checkpoint("dodo"))


def test_a_variant_that_is_none() -> None:
    class Loose(Fake):
        def variant_for(self, checkpoint: Checkpoint) -> Any:
            return "loose-1"

    with pytest.raises(PluginError, match=r"family loose: variant_for gave 'loose-1', which is no colibri\.family\.Variant"):
        Plugins.of(Loose("loose", None)).family_for(checkpoint("loose"))


def test_a_family_that_knows_its_checkpoint_to_be_faulty_says_so() -> None:
    fault = CheckpointError("hidden_size is missing", file="/models/m/config.json")
    with pytest.raises(CheckpointError, match="hidden_size is missing"):
        Plugins.of(Fake("wren", lambda _: fault)).family_for(checkpoint("wren"))


def test_names_that_are_not_installed() -> None:
    plugins = Plugins.of(Fake("wren", knows("wren")))
    with pytest.raises(PluginError, match=r"no family 'dodo' is installed. Installed: wren"):
        plugins.family("dodo")
    with pytest.raises(PluginError, match=r"no variant 'wren-2' is installed \(did you mean 'wren-1'\?\)"):
        plugins.variant("wren-2")


# The hooks, one test each.


def plugin_file(folder: Path, body: str) -> str:
    path = folder / "hooks.py"
    path.write_text("from colibri import hookimpl\n" + textwrap.dedent(body), encoding="utf-8")
    return str(path)


def one_plugin(folder: Path, body: str) -> tuple[Plugins, Any]:
    """A plugin of this code, and its `seen` list."""
    import sys

    plugins = load(plugin=(plugin_file(folder, "seen = []\n" + textwrap.dedent(body)),))
    assert plugins.broken() == ()
    return plugins, sys.modules["colibri_plugin_file_hooks"].seen  # type: ignore[attr-defined]


def test_hook_register_families(install: Install) -> None:
    install("heron")
    assert load("heron").family("heron").name == "heron"


def test_hook_select_family(tmp_path: Path) -> None:
    body = FAMILY.replace("{name}", "finch") + textwrap.dedent("""
        @hookimpl
        def select_family(checkpoint):
            return "finch" if checkpoint.path.name == "m" else None
        """)
    plugins, _ = one_plugin(tmp_path, body.replace('== "finch"', 'in ("finch", "odd")'))
    assert plugins.family_for(checkpoint("odd"))[0].name == "finch"
    with pytest.raises(PluginError, match="selects family 'finch' for /models/m, which declines it"):
        plugins.family_for(checkpoint("quite other"))


def test_hook_add_commands(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    import argparse

    from colibri.cli.commands import Commands

    parser = argparse.ArgumentParser()
    commands = Commands(parser)
    commands.add("serve", lambda args: 0, "core's own")
    plugins, _ = one_plugin(
        tmp_path,
        """
        @hookimpl
        def add_commands(commands):
            commands.add("sing", lambda args: 7, "sing a song").add_argument("--loud", action="store_true")
            commands.add("serve", lambda args: 8, "shadow core")
        """,
    )
    plugins.add_commands(commands)
    args = parser.parse_args(["sing", "--loud"])
    assert (args.run(args), args.loud) == (7, True)
    assert parser.parse_args(["serve"]).run(None) == 0
    assert "command 'serve' exists already" in caplog.text


def test_hook_routes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def handler(request: Any) -> Any: ...

    path = plugin_file(
        tmp_path,
        """
        @hookimpl
        def routes(app):
            app.route("GET", HOME + "song", None)
            if STRAY:
                app.route("GET", "/v1/models", None)
        """,
    )
    source = Path(path).read_text(encoding="utf-8")
    for stray, kept in ((False, ["/v1/models", "/x/hooks/song"]), (True, ["/v1/models"])):
        Path(path).write_text(f"HOME = '/x/hooks/'\nSTRAY = {stray}\n{source}", encoding="utf-8")
        app = App(Settings())
        app.route("GET", "/v1/models", handler)
        load(plugin=(path,)).routes(app)
        assert [route.path for route in app.routes] == kept
    assert "route /v1/models is outside /x/hooks/" in caplog.text


RECORD = RequestRecord(model="m", finish="stop", prompt_tokens=3)


def test_hook_request_finished(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    plugins, seen = one_plugin(
        tmp_path,
        """
        @hookimpl
        def request_finished(record):
            seen.append(record)
            raise ValueError("no disk")
        """,
    )
    plugins.request_finished(RECORD)
    assert seen == [RECORD]
    assert "failed in request_finished" in caplog.text


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_hook_server_started(kind: str, tmp_path: Path) -> None:
    plugins, seen = one_plugin(tmp_path, f"@hookimpl\n{kind} server_started(server): seen.append(server)")
    server: Any = object()
    asyncio.run(plugins.server_started(server))
    assert seen == [server]


def test_hook_server_started_can_abort_the_start(tmp_path: Path) -> None:
    plugins, _ = one_plugin(tmp_path, "@hookimpl\nasync def server_started(): raise OSError('no licence')")
    server: Any = object()
    with pytest.raises(PluginError, match="failed in server_started: OSError: no licence"):
        asyncio.run(plugins.server_started(server))


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_hook_server_stopping(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    body = f"@hookimpl\n{kind} server_stopping(server):\n    seen.append(server)\n    raise OSError('late')"
    plugins, seen = one_plugin(tmp_path, body)
    server: Any = object()
    asyncio.run(plugins.server_stopping(server))
    assert seen == [server]
    assert "failed in server_stopping" in caplog.text


def hooks() -> list[str]:
    return [name for name, value in vars(hookspecs).items() if hasattr(value, "colibri_spec")]


@pytest.mark.parametrize("name", hooks())
def test_every_hook_is_called_tested_and_described(name: str) -> None:
    assert hasattr(Plugins, name) or name in ("register_families", "select_family")
    assert any(test.startswith(f"test_hook_{name}") for test in globals())
    assert getattr(hookspecs, name).__doc__


def test_hooks_are_few() -> None:
    assert 1 <= len(hooks()) <= 9


def test_hookimpl_is_for_these_hooks() -> None:
    assert hookimpl.project_name == "colibri"


REPOSITORY = Path(__file__).parents[2]
DOCS = (REPOSITORY / "docs" / "plugins.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", hooks())
def test_every_hook_is_documented_with_its_signature(name: str) -> None:
    signature = ", ".join(inspect.signature(getattr(hookspecs, name)).parameters)
    assert f"### `{name}({signature})`" in DOCS


def test_no_hook_is_documented_that_is_not_there() -> None:
    assert set(re.findall(r"^### `(\w+)\(", DOCS, re.MULTILINE)) == set(hooks())


def test_the_documented_plugin_loads(tmp_path: Path) -> None:
    path = tmp_path / "heron.py"
    [code] = [block for block in re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL) if "register_families" in block]
    path.write_text(code, encoding="utf-8")
    plugins = load(plugin=(str(path),))
    assert plugins.broken() == ()
    family, variant = plugins.family_for(checkpoint("heron"))
    conversation = Conversation((Turn("user", (TextPart("<|end|>?"),)),))
    rendered = family.render(variant, conversation, TurnOptions())
    assert rendered.text == "<|turn|>user\n<|end|>?<|end|><|turn|>assistant\n"
    assert [type(piece).__name__ for piece in rendered.pieces] == ["Special", "Text", "Special", "Special", "Text"]


def test_every_operation_and_block_is_documented() -> None:
    operations = [name for name, value in vars(Operations).items() if inspect.isfunction(value) and name[0] != "_"]
    functions = [name for name, value in vars(blocks).items() if inspect.isfunction(value)]
    assert len(operations) > 30
    assert [name for name in (*operations, *functions) if f"`{name}`" not in DOCS] == []


def test_every_module_that_the_documents_name_is_there() -> None:
    for document in ("plugins.md", "architecture.md"):
        text = (REPOSITORY / "docs" / document).read_text(encoding="utf-8")
        for name in re.findall(r"`(colibri(?:\.\w+)+)`", text):
            assert resolve(name), name
        for path in re.findall(r"`(?:colibri/)?((?:\w+/)*\w+\.py)`", text):
            homes = (REPOSITORY / "core" / "src" / "colibri", REPOSITORY / "plugins" / "olmoe" / "src" / "colibri_olmoe")
            assert any((home / path).is_file() for home in homes), path


def resolve(name: str) -> object:
    """A module, or something in one, by its dotted name."""
    try:
        return pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return None
