"""Finding plugins, and what they bring. A plugin that cannot be used becomes a row with its reason, not a crash."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace as with_fields
from pluggy import PluginManager, PluginValidationError

from . import __version__, hookspecs
from .discovery import PluginRow, candidates, distributions
from .errors import ColibriError, PluginError
from .family import FAMILY_API, Family, Variant
from .settings import Settings, nearest

if TYPE_CHECKING:
    from .api.app import App
    from .cli.commands import Commands
    from .compute.checkpoint import Checkpoint
    from .hookspecs import RequestRecord, Server

_SUPPORTED_APIS = (FAMILY_API,)
_PARTS = ("variants", "variant_for", "tokenizer", "sampling", "render", "output", "stops", "graph")

log = logging.getLogger("colibri.plugins")


class FamilyRow(Struct, frozen=True):
    """One usable family: who registered it (`origin`, as of its plugin) and what it serves."""

    name: str
    origin: PluginRow
    variants: tuple[Variant, ...]
    family: Family


class _Offer(Struct, frozen=True):
    """What one call of `register` brought."""

    family: Any
    replaces: str | None


class _Loaded(Struct):
    """A plugin whose module could be loaded, before it is known whether it gets along with the others."""

    row: PluginRow
    plugin: object
    offers: list[_Offer]


class _Overlay:
    """A family of which some parts are replaced: looks at the replacement first, then at the family below."""

    def __init__(self, parts: object, base: Family) -> None:
        self._parts, self._base = parts, base

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parts if hasattr(self._parts, name) else self._base, name)


class Plugins:
    """The plugins in use. Made by `load_plugins`; the methods below are how the rest of core calls them."""

    def __init__(self, loaded: Iterable[_Loaded] = (), broken: Iterable[PluginRow] = ()) -> None:
        self._manager = _manager()
        self._rows = list(broken)
        self._families: dict[str, FamilyRow] = {}
        self._settle(list(loaded))

    @classmethod
    def of(cls, *families: object) -> Plugins:
        """Plugins that bring just these families. For tests and tools."""
        offers = [_Offer(_checked(family), None) for family in families]
        return cls([_Loaded(PluginRow("given"), object(), offers)] if offers else ())

    # What is there.

    def rows(self) -> Sequence[PluginRow]:
        """All plugins found, broken ones included, by name."""
        return tuple(sorted(self._rows, key=lambda row: (row.name, row.distribution or "")))

    def broken(self) -> Sequence[PluginRow]:
        """The plugins that are not in use, each with its reason."""
        return tuple(row for row in self.rows() if row.error is not None)

    def families(self) -> Sequence[FamilyRow]:
        """The usable families, by name."""
        return tuple(self._families[name] for name in sorted(self._families))

    def family(self, name: str) -> Family:
        """A family by its name. Raises PluginError."""
        if name not in self._families:
            raise PluginError(f"no family {name!r} is installed. {self._inventory()}")
        return self._families[name].family

    def variant(self, name: str) -> tuple[Family, Variant]:
        """The variant users write as `name`, with its family. Raises PluginError."""
        found = [(row, variant) for row in self.families() for variant in row.variants if variant.name == name]
        if len(found) > 1:
            owners = " and ".join(f"{row.name} ({row.origin.origin})" for row, _ in found)
            raise PluginError(f"variant {name!r} is claimed by {owners}; disable one of them with COLI_DISABLE_PLUGINS")
        if not found:
            names = [variant.name for row in self.families() for variant in row.variants]
            raise PluginError(f"no variant {name!r} is installed{nearest(name, names)}. {self._inventory()}")
        row, variant = found[0]
        return row.family, variant

    def family_for(self, checkpoint: Checkpoint) -> tuple[Family, Variant]:
        """The family that serves a checkpoint, and the variant it is. Raises PluginError, or CheckpointError when the
        family knows the checkpoint as its own and finds it faulty."""
        for plugin, name in self._answers("select_family", checkpoint=checkpoint):
            if name is None:
                continue
            variant = self.family(name).variant_for(checkpoint)
            if variant is None:
                raise PluginError(f"plugin {plugin!r} selects family {name!r} for {checkpoint.path}, which declines it")
            return self.family(name), _variant(self.family(name), variant)
        found: list[tuple[FamilyRow, Variant]] = []
        failed: list[ColibriError] = []
        for row in self.families():
            try:
                variant = row.family.variant_for(checkpoint)
            except ColibriError as error:
                failed.append(error)
            except Exception as error:
                log.debug("variant_for of family %s failed", row.name, exc_info=True)
                failed.append(
                    PluginError(f"family {row.name} ({row.origin.origin}) failed on {checkpoint.path}: {_reason(error)}")
                )
            else:
                if variant is not None:
                    found.append((row, _variant(row.family, variant)))
        if len(found) > 1:
            owners = " and ".join(f"{row.name} ({row.origin.origin})" for row, _ in found)
            raise PluginError(f"{checkpoint.path} is claimed by {owners}; disable one of them with COLI_DISABLE_PLUGINS")
        if found:
            return found[0][0].family, found[0][1]
        if failed:
            raise failed[0]
        kind = (
            f"model type {checkpoint.model_type[:60]!r}" if checkpoint.model_type else "this model (it names no model type)"
        )
        raise PluginError(
            f"{checkpoint.path}: no installed plugin serves {kind}. {self._inventory()} {self._advice(checkpoint)}"
        )

    # Hooks, one method each.

    def add_commands(self, commands: Commands) -> None:
        """Let plugins add sub-commands. One that fails is logged and left out."""
        for _ in self._answers("add_commands", commands=commands):
            pass

    def routes(self, app: App) -> None:
        """Let plugins add routes under /x/<plugin>/. Those of a plugin that fails or strays are left out."""
        for impl in self._manager.hook.routes.get_hookimpls():
            before = len(app.routes)
            home = f"/x/{impl.plugin_name}/"
            try:
                _call(impl, app=app)
                strays = [route.path for route in app.routes[before:] if not route.path.startswith(home)]
                if strays:
                    raise PluginError(f"route {strays[0]} is outside {home}")
            except Exception as error:
                del app.routes[before:]
                log.error("plugin %r failed in routes: %s", impl.plugin_name, _reason(error))

    async def server_started(self, server: Server) -> None:
        """Tell plugins that the server listens. Raises PluginError if one cannot go on."""
        for impl in self._manager.hook.server_started.get_hookimpls():
            try:
                await _settled(_call(impl, server=server))
            except Exception as error:
                raise PluginError(f"plugin {impl.plugin_name!r} failed in server_started: {_reason(error)}") from error

    async def server_stopping(self, server: Server) -> None:
        """Tell plugins that the server is about to go."""
        for impl in self._manager.hook.server_stopping.get_hookimpls():
            try:
                await _settled(_call(impl, server=server))
            except Exception:
                log.exception("plugin %r failed in server_stopping", impl.plugin_name)

    def request_finished(self, record: RequestRecord) -> None:
        """Show plugins a finished generation."""
        for _ in self._answers("request_finished", record=record):
            pass

    def _answers(self, hook: str, **arguments: object) -> Iterator[tuple[str, Any]]:
        """Each implementation's plugin name and result, in pluggy's order; one that raises is logged and skipped."""
        for impl in reversed(getattr(self._manager.hook, hook).get_hookimpls()):
            try:
                answer = _call(impl, **arguments)
            except Exception:
                log.exception("plugin %r failed in %s", impl.plugin_name, hook)
            else:
                yield impl.plugin_name, answer

    # Putting them together.

    def _settle(self, loaded: list[_Loaded]) -> None:
        """Take over what gets along; plugins in each other's way are all left out, so that order never decides."""
        claims: dict[tuple[str, bool], list[_Loaded]] = {}
        for item in loaded:
            for offer in item.offers:
                claims.setdefault((offer.replaces or offer.family.name, offer.replaces is not None), []).append(item)
        for (name, replacing), claimants in claims.items():
            if len(claimants) > 1:
                owners = " and ".join(item.row.origin for item in claimants)
                deed = "replaced" if replacing else "registered"
                _refuse(claimants, f"family {name!r} is {deed} by both {owners}; disable one with COLI_DISABLE_PLUGINS")
        for item in loaded:
            for offer in item.offers:
                if offer.replaces is not None and not any(
                    _usable(other) for other in claims.get((offer.replaces, False), ())
                ):
                    _refuse([item], f"replaces family {offer.replaces!r}, which no usable plugin registers")
        for replacing in (False, True):
            for item in filter(_usable, loaded):
                for offer in item.offers:
                    if (offer.replaces is not None) == replacing:
                        self._adopt(item, offer)
        for item in loaded:
            if _usable(item):
                self._manager.register(item.plugin, name=item.row.name)
            self._rows.append(item.row)

    def _adopt(self, item: _Loaded, offer: _Offer) -> None:
        family: Family = offer.family
        if offer.replaces is not None:
            base = self._families.pop(offer.replaces, None)
            if base is None:
                return
            family = cast("Family", _Overlay(offer.family, base.family))
        item.row = with_fields(item.row, families=(*item.row.families, family.name))
        self._families[family.name] = FamilyRow(family.name, item.row, tuple(family.variants()), family)

    def _inventory(self) -> str:
        """What is installed, and what is broken and why, in a sentence each."""
        installed = ", ".join(f"{row.name} ({row.origin.origin})" for row in self.families())
        broken = "".join(
            f" Plugin {row.name!r} ({row.origin}) is installed but broken: {row.error}." for row in self.broken()
        )
        return f"Installed: {installed or 'no family plugin at all'}.{broken}"

    def _advice(self, checkpoint: Checkpoint) -> str:
        """Which plugin may serve a checkpoint that none does. Plugins are called for the maker's or the model's name, and
        that is what a model type begins with."""
        word = re.match(r"[a-z]{2,32}", (checkpoint.model_type or "").lower())
        if word is None:
            return "Install the plugin for it: they are packages named colibri-<family>."
        name = f"colibri-{word[0]}"
        if any(row.distribution == name for row in self._rows):
            return f"{name} is installed, perhaps a later version of it serves this model: pip install --upgrade {name}."
        if name in distributions():
            return f"{name} is installed but was left out: see --only-plugin and --disable-plugin."
        return f"A plugin for it would be called {name}: if there is one, and you trust it, pip install {name}."


def load_plugins(settings: Settings | None = None) -> Plugins:
    """All plugins that `settings` allows: those of installed distributions, then the files of `--plugin`."""
    settings = settings or Settings()
    loaded: list[_Loaded] = []
    broken: list[PluginRow] = []
    for row, load in candidates(settings):
        try:
            if row.error is not None:
                raise PluginError(row.error)
            loaded.append(_probed(row, load()))
        except (Exception, SystemExit) as error:
            log.debug("plugin %s cannot be used", row.name, exc_info=True)
            broken.append(with_fields(row, error=_reason(error)))
    return Plugins(loaded, broken)


def _probed(row: PluginRow, plugin: object) -> _Loaded:
    """Try a plugin on a manager of its own, so that a bad one leaves no trace. Raises with the reason."""
    manager = _manager()
    known = {name for name in vars(hookspecs) if getattr(vars(hookspecs)[name], "colibri_spec", None)}
    try:
        manager.register(plugin, name=row.name)
        manager.check_pending()
    except PluginValidationError as error:
        for caller in manager.get_hookcallers(plugin) or ():
            if caller.name not in known:
                raise PluginError(f"unknown hook {caller.name!r}{nearest(caller.name, known)}") from None
        raise PluginError(" ".join(str(error).split("\n", 2)[1:]) or str(error)) from None
    if not manager.get_hookcallers(plugin):
        raise PluginError("it has no hooks; mark its functions with @hookimpl (from colibri import hookimpl)")
    offers: list[_Offer] = []

    def register(family: object, *, replace: str | None = None) -> None:
        offers.append(_Offer(_checked(family, parts=replace is not None), replace))

    manager.hook.register_families(register=register)
    return _Loaded(row, plugin, offers)


def _checked(family: object, *, parts: bool = False) -> object:
    """`family`, if it has what the contract asks for. Raises PluginError."""
    what = f"family {getattr(family, 'name', type(family).__name__)!r}"
    api = getattr(family, "api", None)
    if api not in _SUPPORTED_APIS:
        supported = ", ".join(map(str, _SUPPORTED_APIS))
        raise PluginError(f"{what} is written for family API {api}; colibri {__version__} supports {supported}")
    if not parts:
        if not isinstance(getattr(family, "name", None), str):
            raise PluginError(f"{what} has no name")
        missing = [part for part in _PARTS if not callable(getattr(family, part, None))]
        if missing:
            raise PluginError(f"{what} lacks {', '.join(missing)}")
    if isinstance(family, type):
        raise PluginError(f"{what} is a class; register an object of it")
    if hasattr(family, "variants"):
        _check_variants(what, family.variants())
        heard = {kind for variant in family.variants() for kind in variant.capabilities.inputs} - {"text"}
        if heard and not parts and not callable(getattr(family, "encode", None)):
            raise PluginError(f"{what} claims {' and '.join(sorted(heard))} input and lacks encode")
        drafts = any(variant.capabilities.drafts != "none" for variant in family.variants())
        if drafts and not parts and not callable(getattr(family, "draft", None)):
            raise PluginError(f"{what} claims drafts and lacks draft")
    return family


def _check_variants(what: str, variants: object) -> None:
    """Structs take whatever they are given: here it is seen to that a variant says what can be understood."""
    if not isinstance(variants, Sequence) or not all(isinstance(variant, Variant) for variant in variants):
        raise PluginError(f"{what} has variants that are no sequence of colibri.family.Variant")
    for variant in variants:
        try:
            msgspec.convert(msgspec.to_builtins(variant), Variant)
        except (msgspec.ValidationError, TypeError) as error:
            raise PluginError(f"{what}, variant {variant.name!r}: {error}") from None
        if not re.fullmatch(r"[^\sA-Z]+", variant.name):
            raise PluginError(f"{what}, variant {variant.name!r}: the name must be lower case and without blanks")


def _variant(family: Family, variant: object) -> Variant:
    """What `variant_for` found, if it is one."""
    if not isinstance(variant, Variant):
        raise PluginError(f"family {family.name}: variant_for gave {variant!r}, which is no colibri.family.Variant")
    return variant


def _manager() -> PluginManager:
    manager = PluginManager("colibri")
    manager.add_hookspecs(hookspecs)
    return manager


def _call(impl: Any, **arguments: object) -> Any:
    """Call one implementation with the arguments it wants."""
    return impl.function(*(arguments[name] for name in impl.argnames))


async def _settled(answer: Any) -> None:
    if inspect.isawaitable(answer):
        await answer


def _usable(item: _Loaded) -> bool:
    return item.row.error is None


def _refuse(items: Iterable[_Loaded], error: str) -> None:
    for item in items:
        item.row = with_fields(item.row, error=error)


def _reason(error: BaseException) -> str:
    """An exception in one line."""
    text = str(error).strip().splitlines()
    if isinstance(error, PluginError):
        return text[0] if text else "no reason given"
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
