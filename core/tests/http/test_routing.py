"""Paths, methods, and what is said when there is no route."""

from __future__ import annotations

import pytest

from colibri.api.message import Reply, Request
from colibri.api.route import Route
from colibri.errors import BadRequest, NotFound
from colibri.http.routing import Router


async def _handler(request: Request) -> Reply:
    return Reply()


def _router(*routes: tuple[str, str]) -> Router:
    return Router(Route(method, path, _handler) for method, path in routes)


ROUTER = _router(
    ("GET", "/v1/models"),
    ("GET", "/v1/models/{model*}"),
    ("POST", "/v1/chat/completions"),
    ("GET", "/v1/responses/{id}"),
    ("DELETE", "/v1/responses/{id}"),
    ("POST", "/v1/responses/{id}/cancel"),
)


@pytest.mark.parametrize(
    ("method", "path", "route", "params"),
    [
        ("GET", "/v1/models", "/v1/models", {}),
        ("HEAD", "/v1/models", "/v1/models", {}),
        ("GET", "/v1/models/tiny", "/v1/models/{model*}", {"model": "tiny"}),
        ("GET", "/v1/models/org/tiny", "/v1/models/{model*}", {"model": "org/tiny"}),
        ("GET", "/v1/models/org%2Ftiny%20x", "/v1/models/{model*}", {"model": "org/tiny x"}),
        ("DELETE", "/v1/responses/a%2Fb", "/v1/responses/{id}", {"id": "a/b"}),
        ("POST", "/v1/responses/r1/cancel", "/v1/responses/{id}/cancel", {"id": "r1"}),
    ],
)
def test_match(method: str, path: str, route: str, params: dict[str, str]) -> None:
    match = ROUTER.match(method, path)
    assert (match.route.path, match.params) == (route, params)


@pytest.mark.parametrize(
    "path", ["/", "/v1/models/", "/v1/responses/", "/v1/responses/a/b", "/v1/modelsx", "/V1/models", ""]
)
def test_not_found(path: str) -> None:
    with pytest.raises(NotFound) as caught:
        ROUTER.match("GET", path)
    assert (caught.value.status, caught.value.code) == (404, "not_found")


def test_a_forgotten_prefix_is_named() -> None:
    with pytest.raises(NotFound, match="did you mean /v1/chat/completions"):
        ROUTER.match("POST", "/chat/completions")


def test_wrong_method() -> None:
    with pytest.raises(BadRequest) as caught:
        ROUTER.match("POST", "/v1/responses/x")
    assert (caught.value.status, caught.value.code) == (405, "method_not_allowed")
    assert caught.value.headers == (("allow", "DELETE, GET, HEAD, OPTIONS"),)
