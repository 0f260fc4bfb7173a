"""From a method and a path to the route that answers."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import unquote

from msgspec import Struct

from ..api.route import Route
from ..errors import BadRequest, NotFound


class Match(Struct, frozen=True):
    """A route and the decoded values of its `{name}` segments."""

    route: Route
    params: dict[str, str]


class Router:
    """Looks routes up: exact paths in one step, patterns in the order they were added."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._exact: dict[str, dict[str, Route]] = {}
        self._patterns: dict[tuple[str, ...], dict[str, Route]] = {}
        for route in routes:
            if "{" in route.path:
                table = self._patterns.setdefault(tuple(route.path.split("/")), {})
            else:
                table = self._exact.setdefault(route.path, {})
            table[route.method] = route

    def match(self, method: str, path: str) -> Match:
        """The route of `path`. HEAD is answered by GET's. Raises NotFound, or BadRequest 405 with Allow."""
        found = self._find(path)
        if found is None:
            hint = f"; did you mean /v1{path}?" if self._find("/v1" + path) else "."
            raise NotFound(f"There is nothing at {method} {path[:200]}{hint}")
        table, params = found
        route = table.get(method) or (table.get("GET") if method == "HEAD" else None)
        if route is None:
            allow = ", ".join(self._methods(table))
            raise BadRequest(
                f"{path[:200]} answers {allow}, not {method}.",
                status=405,
                code="method_not_allowed",
                headers=(("allow", allow),),
            )
        return Match(route, params)

    def _find(self, path: str) -> tuple[dict[str, Route], dict[str, str]] | None:
        if table := self._exact.get(path):
            return table, {}
        segments = path.split("/")
        for pattern, table in self._patterns.items():
            if (params := _bind(pattern, segments)) is not None:
                return table, params
        return None

    @staticmethod
    def _methods(table: dict[str, Route]) -> list[str]:
        return sorted({*table, *(["HEAD"] if "GET" in table else []), "OPTIONS"})


def _bind(pattern: tuple[str, ...], segments: list[str]) -> dict[str, str] | None:
    rest = pattern[-1].endswith("*}")
    if len(segments) != len(pattern) and not (rest and len(segments) > len(pattern)):
        return None
    params = {}
    for i, part in enumerate(pattern):
        value = "/".join(segments[i:]) if part.endswith("*}") else segments[i]
        if not part.startswith("{"):
            if part != value:
                return None
        elif not value:
            return None
        else:
            # Decoded only here, so that an encoded slash stays inside its segment.
            params[part.strip("{*}")] = unquote(value)
    return params
