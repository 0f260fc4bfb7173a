"""Every setting of the server and the commands, in one frozen Struct, and where each value comes from."""

from __future__ import annotations

import argparse
import difflib
import types
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec
import tomli
from msgspec import Meta, Struct

from .errors import SettingError

#: The file that is read when no other is named.
FILE = "colibri.toml"

#: Variables that steer the program without being settings: the settings file, and tracebacks instead of one-line errors.
OTHER_VARIABLES = ("COLI_CONFIG", "COLI_DEBUG")


def _about(
    text: str,
    *,
    flag: str | None = None,
    metavar: str | None = None,
    secret: bool = False,
    words: str | None = None,
    also: str | None = None,
    **limits: Any,
) -> Meta:
    """What help says about a setting, and its limits.

    `flag` is its flag where that is not the field's name, `words` the values allowed where the limits don't tell, `also`
    another variable that is read where its own is not set.
    """
    extra = {"flag": flag, "metavar": metavar, "secret": secret, "words": words, "also": also}
    return Meta(description=text, extra=extra, **limits)


class Settings(Struct, frozen=True, kw_only=True):
    """All settings, resolved. Field `x_y` is flag `--x-y`, variable `COLI_X_Y` and key `x_y` of colibri.toml.

    The flag of a list takes one item and may be repeated; its variable separates them by commas.
    """

    model: Annotated[str | None, _about("the model: a folder with safetensors files, or a GGUF file", metavar="PATH")] = None
    model_id: Annotated[str | None, _about("the model's name for clients (default: from the path)", metavar="NAME")] = None
    plugin: Annotated[tuple[str, ...], _about("load a plugin from a Python file", metavar="FILE")] = ()
    plugins: Annotated[
        tuple[str, ...] | None,
        _about("use this installed plugin and no others (default: all)", flag="--only-plugin", metavar="NAME"),
    ] = None
    disable_plugins: Annotated[
        tuple[str, ...], _about("leave this installed plugin out", flag="--disable-plugin", metavar="NAME")
    ] = ()
    host: Annotated[str, _about("address to listen on", metavar="ADDRESS")] = "127.0.0.1"
    port: Annotated[int, _about("port to listen on; 0 picks a free one", ge=0, le=65535)] = 8000
    api_key: Annotated[str | None, _about("key that clients must send", metavar="KEY", secret=True)] = None
    allowed_hosts: Annotated[
        tuple[str, ...],
        _about("a name clients may call this server by, besides its address", flag="--allowed-host", metavar="NAME"),
    ] = ()
    cors_origins: Annotated[
        tuple[str, ...], _about("a web origin that may call this server", flag="--cors-origin", metavar="ORIGIN")
    ] = ()
    ctx: Annotated[int, _about("context in tokens; 0: the model's own limit, at most 4096", metavar="TOKENS", ge=0)] = 0
    kv_slots: Annotated[int, _about("how many requests run at once, each with its own cache", ge=1, le=16)] = 1
    kv_save: Annotated[
        bool,
        _about("keep what slots hold in files, so that conversations go on after a restart; also KVSAVE", also="KVSAVE"),
    ] = True
    kv_dir: Annotated[
        str | None,
        _about(
            "where those files go (default: the model's folder, or one in ~/.local/state where that can't be written)",
            metavar="PATH",
        ),
    ] = None
    kv_disk: Annotated[
        str,
        _about(
            "numbers in those files: f32 goes on byte for byte; f16 and q8 take a half and a good quarter of the room, and "
            "answers may differ after a restart (default: f32)",
            words="f32, f16 or q8",
            pattern="^(f32|f16|q8)$",
        ),
    ] = "f32"
    max_tokens: Annotated[int, _about("ceiling for one answer, in tokens", metavar="TOKENS", ge=1)] = 16384
    max_queue: Annotated[int, _about("how many requests may wait for a slot", ge=0)] = 8
    queue_timeout: Annotated[
        float,
        _about(
            "how long a request may wait for a slot",
            metavar="SECONDS",
            words="a number of seconds above 0, at most a year",
            gt=0,
            le=366 * 24 * 3600,
        ),
    ] = 300.0
    ram: Annotated[
        float,
        _about(
            "memory for the model; experts that it doesn't hold are read from disk as they are needed; "
            "0: most of what is free",
            metavar="GB",
            ge=0,
            le=1e6,
        ),
    ] = 0.0
    mirror: Annotated[
        str | None, _about("a copy of the model on another disk, to read experts from both", metavar="PATH")
    ] = None
    usage: Annotated[bool, _about("remember which experts are needed most, to have them in memory at the next start")] = True
    io_threads: Annotated[int, _about("how many reads of experts are under way at once", ge=1, le=256)] = 8
    threads: Annotated[int, _about("compute threads; 0: all physical cores", ge=0, le=1024)] = 0
    isa: Annotated[
        str,
        _about(
            "code path: scalar, avx2 or avx512 (default: the best this CPU has)",
            words="scalar, avx2 or avx512",
            pattern="^(|scalar|avx2|avx512)$",
        ),
    ] = ""
    prefill_chunk: Annotated[
        int, _about("prompt tokens computed between two steps of running answers", metavar="TOKENS", ge=1)
    ] = 256
    spec: Annotated[bool, _about("compute likely next tokens ahead, where that is faster; answers stay the same")] = True
    spec_gate: Annotated[bool, _about("switch drafts off while they are measured to lose time")] = True
    lookup: Annotated[bool, _about("draft from the request's own text, which answers often repeat")] = True
    lookup_drafts: Annotated[int, _about("most tokens to draft from text at once", metavar="TOKENS", ge=1, le=31)] = 15
    mtp: Annotated[
        bool | None, _about("draft with the model's own draft head (default: where it has one that fits in memory)")
    ] = None
    mtp_drafts: Annotated[
        int, _about("most tokens to draft with the model's head at once", metavar="TOKENS", ge=1, le=8)
    ] = 3
    temp: Annotated[
        Annotated[float, Meta(ge=0, le=2)] | None,
        _about("default temperature (default: the model's recommendation)", words="a number from 0 to 2"),
    ] = None
    continue_assistant: Annotated[bool, _about("let a trailing assistant message be continued")] = True
    think: Annotated[bool | None, _about("let the model think by default (default: the model's own)")] = None
    tool_fallback: Annotated[bool, _about("describe tools in the prompt for models without a tool format")] = False
    max_body: Annotated[int, _about("longest request body", metavar="BYTES", ge=1024)] = 32 << 20


class Resolved(Struct, frozen=True):
    """Settings with the source of each field (`flag --port`, `variable COLI_PORT`, `port in colibri.toml`, `default`)
    and warnings worth a line on stderr."""

    settings: Settings
    sources: dict[str, str]
    warnings: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Each setting with its value and source, aligned; secrets are masked."""
        shown = [(about.name, about.shown(getattr(self.settings, about.name))) for about in ABOUT.values()]
        wide, deep = max(len(name) for name, _ in shown), max(len(value) for _, value in shown)
        return [f"{name:{wide}}  {value:{deep}}  {self.sources[name]}" for name, value in shown]


class About(Struct, frozen=True):
    """One setting as seen from outside the Struct: how it is spelled everywhere, and what its values may be."""

    name: str
    flag: str
    hint: Any
    kind: type
    optional: bool
    help: str
    metavar: str | None
    secret: bool
    words: str
    also: str | None = None

    @property
    def variable(self) -> str:
        """Its variable: `COLI_KV_SLOTS`."""
        return "COLI_" + self.name.upper()

    def shown(self, value: object) -> str:
        """A value as people read it."""
        if self.secret and value is not None:
            return "********"
        if isinstance(value, tuple):
            return ", ".join(value) or "(none)"
        if isinstance(value, bool):
            return "true" if value else "false"
        return "(unset)" if value is None or value == "" else str(value)

    def read(self, value: object, source: str) -> Any:
        """The setting's value from a flag, variable or key. Raises SettingError naming the source."""
        if isinstance(value, str) and self.kind is not str and self.kind is not tuple:
            value = value.strip()
            if self.kind is bool:
                value = {"yes": "true", "on": "true", "no": "false", "off": "false"}.get(value.lower(), value)
        if value == "" and self.kind is str and self.name != "isa":
            # `--api-key "$KEY"` without a KEY must not open the server, nor an empty host every interface.
            raise SettingError(f"{source}: expected {self.words}, got an empty one")
        try:
            return msgspec.convert(value, self.hint, strict=not isinstance(value, str))
        except msgspec.ValidationError:
            got = "a secret" if self.secret else repr(value)
            raise SettingError(f"{source}: expected {self.words}, got {got}") from None


def _abouts() -> dict[str, About]:
    abouts = {}
    for name, hint in get_type_hints(Settings, include_extras=True).items():
        whole, meta = get_args(hint)
        options = get_args(whole) if get_origin(whole) in (Union, types.UnionType) else (whole,)
        kind = next(option for option in options if option is not type(None))
        kind = get_args(kind)[0] if get_origin(kind) is Annotated else get_origin(kind) or kind
        extra = meta.extra
        words = extra["words"] or _words(kind, meta)
        optional = type(None) in options
        flag = extra["flag"] or "--" + name.replace("_", "-")
        rest = extra["metavar"], extra["secret"], words, extra["also"]
        abouts[name] = About(name, flag, hint, kind, optional, meta.description, *rest)
    return abouts


def _words(kind: type, meta: Meta) -> str:
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a string", tuple: "a list of strings"}[
        kind
    ]
    if meta.ge is not None and meta.le is not None:
        return f"{words} from {meta.ge} to {meta.le}"
    if meta.ge is not None:
        return f"{words}, at least {meta.ge}"
    return f"{words} above {meta.gt}" if meta.gt is not None else words


#: All settings by field name, in the order of the Struct.
ABOUT: dict[str, About] = _abouts()


def add_flags(parser: argparse.ArgumentParser, names: Iterable[str] = tuple(ABOUT)) -> None:
    """Give a parser `--config`, `--show-settings` and the flags of these settings, none of them with a default."""
    group = parser.add_argument_group("settings", "also as variables COLI_X_Y and keys x_y of colibri.toml")
    group.add_argument("--config", metavar="FILE", default=argparse.SUPPRESS, help=f"settings file (default: ./{FILE})")
    group.add_argument("--show-settings", action="store_true", help="print every setting with its source, and stop")
    for name in names:
        about = ABOUT[name]
        default = _default(about)
        if about.kind is bool:
            text = about.help if about.optional else f"{about.help} (default: {default})"
            group.add_argument(
                about.flag, dest=name, action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS, help=text
            )
            continue
        many = about.kind is tuple
        text = f"{about.help}; may be repeated" if many else about.help
        if (about.kind in (int, float) and not about.optional) or name == "host":
            text = f"{text} (default: {default})"
        group.add_argument(
            about.flag,
            dest=name,
            action="append" if many else "store",
            default=argparse.SUPPRESS,
            metavar=about.metavar or ("N" if about.kind is int else "X" if about.kind is float else "VALUE"),
            help=text.replace("%", "%%"),
        )


def load_settings(flags: Mapping[str, Any], environ: Mapping[str, str], folder: Path | None = None) -> Resolved:
    """Settings from flags, then COLI_* variables, then colibri.toml in `folder` (default: the current one), then defaults.

    `flags` maps field names (and `config`) to what the command line said; other entries are ignored. Raises
    SettingError naming the flag, variable, or key and file at fault.
    """
    values: dict[str, Any] = {}
    sources = dict.fromkeys(ABOUT, "default")
    for about, value, source in [
        *_from_file(flags, environ, folder or Path()),
        *_from_variables(environ),
        *_from_flags(flags),
    ]:
        values[about.name] = about.read(value, source)
        sources[about.name] = source
    return Resolved(Settings(**values), sources, tuple(_strange_variables(environ)))


Found = tuple[About, object, str]


def _from_flags(flags: Mapping[str, Any]) -> Iterator[Found]:
    for about in ABOUT.values():
        if about.name in flags:
            yield about, flags[about.name], f"flag {about.flag}"


def _from_variables(environ: Mapping[str, str]) -> Iterator[Found]:
    for about in ABOUT.values():
        for variable in filter(None, (about.also, about.variable)):
            text = environ.get(variable)
            if text is None or (text == "" and about.kind is not tuple):
                continue  # an empty variable is how shells unset one; an empty list is a value
            value = [item for item in map(str.strip, text.split(",")) if item] if about.kind is tuple else text
            yield about, value, f"variable {variable}"


def _from_file(flags: Mapping[str, Any], environ: Mapping[str, str], folder: Path) -> Iterator[Found]:
    named = flags.get("config") or environ.get("COLI_CONFIG")
    path = Path(named) if named else folder / FILE
    try:
        data = tomli.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if named:
            raise SettingError(f"{path}: no such settings file") from None
        return
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"{path}: cannot be read: {error}") from None
    except tomli.TOMLDecodeError as error:
        raise SettingError(f"{path}: not valid TOML: {error}") from None
    shown = FILE if not named else str(path)
    for key, value in data.items():
        about = ABOUT.get(key) or ABOUT.get(key.replace("-", "_"))
        if about is None or key != about.name:
            raise SettingError(f"{shown}: unknown key {key!r}{nearest(key, ABOUT)}")
        if isinstance(value, str) and about.kind is not str:
            raise SettingError(f"{key} in {shown}: expected {about.words}, got the string {value!r}")
        yield about, value, f"{key} in {shown}"


def _strange_variables(environ: Mapping[str, str]) -> Iterator[str]:
    known = [*(about.variable for about in ABOUT.values()), *OTHER_VARIABLES]
    for name in sorted(environ):
        if name.startswith("COLI_") and name not in known:
            yield f"variable {name} is not a setting{nearest(name, known)}"


def _default(about: About) -> str:
    return about.shown(getattr(Settings(), about.name))


def nearest(name: str, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)` for the closest known name, or nothing."""
    match = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {match[0]!r}?)" if match else ""
