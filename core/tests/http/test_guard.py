"""Hosts, origins and keys."""

from __future__ import annotations

from typing import Any

import pytest

from colibri.api.app import App, build
from colibri.errors import SettingError
from colibri.http.guard import Guard, name_of_host
from colibri.settings import Settings

from ..api.fake import FakeService
from .fake import Answer, ask, request


def app_with(**settings: Any) -> App:
    return build(FakeService(), Settings(**settings))


def get(app: App, path: str = "/v1/models", method: str = "GET", **headers: str) -> Answer:
    (answer,) = ask(app, request(method, path, **headers))
    return answer


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("LocalHost:8000", "localhost"),
        ("[::1]:8000", "::1"),
        ("[::1]", "::1"),
        ("::1", "::1"),
        ("a.example.", "a.example"),
        ("", ""),
        ("1.2.3.4:80", "1.2.3.4"),
    ],
)
def test_name_of_host(host: str, name: str) -> None:
    assert name_of_host(host) == name


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:8000", "", "localhost."])
def test_local_hosts(host: str) -> None:
    assert get(app_with(), host=host).status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "localhost.evil.example", "192.168.1.5", "127.0.0.1.evil", "[::2]"]
)
def test_a_foreign_host_is_refused_with_what_to_do(host: str) -> None:
    answer = get(app_with(), host=host)
    assert (answer.status, answer.error["code"]) == (403, "forbidden")
    assert name_of_host(host) in answer.error["message"]
    assert f"--allowed-host {name_of_host(host)}" in answer.error["message"]
    assert get(app_with(), "/health", host=host).status == 403
    preflight = get(app_with(), method="OPTIONS", host=host)
    assert (preflight.status, preflight.body) == (403, b"")


def test_allowed_hosts_by_name_and_address() -> None:
    app = app_with(allowed_hosts=("proxy.example.net", "192.168.1.5"))
    assert get(app, host="Proxy.Example.net:8000").status == 200
    assert get(app, host="192.168.1.5").status == 200
    assert get(app, host="other.example.net").status == 403


@pytest.mark.parametrize("name", ["*", "*.example.net"])
def test_allowed_hosts_have_no_wildcard(name: str) -> None:
    with pytest.raises(SettingError, match="--allowed-host"):
        Guard(Settings(allowed_hosts=(name,)))


def test_a_server_on_every_address_takes_address_literals_but_no_names() -> None:
    for bind in ("0.0.0.0", "::"):
        assert get(app_with(host=bind), host="192.168.1.5:8000").status == 200
        assert get(app_with(host=bind), host="[fe80::1]").status == 200
        assert get(app_with(host=bind), host="evil.example").status == 403
    assert get(app_with(host="10.0.0.7"), host="10.0.0.7:8000").status == 200
    assert get(app_with(host="10.0.0.7"), host="10.0.0.8:8000").status == 403


@pytest.mark.parametrize(
    "origin", ["http://localhost:5173", "http://127.0.0.1:5173", "tauri://localhost", "http://localhost:8000"]
)
def test_own_pages_may_read(origin: str) -> None:
    answer = get(app_with(), origin=origin)
    assert answer.headers["access-control-allow-origin"] == origin
    assert answer.headers["vary"] == "Origin"
    assert "x-request-id" in answer.headers["access-control-expose-headers"]
    # Errors, too: a page that can't read why it failed can't tell its user.
    assert get(app_with(), "/nowhere", origin=origin).headers["access-control-allow-origin"] == origin


def test_other_pages_may_not_read_unless_configured() -> None:
    assert "access-control-allow-origin" not in get(app_with(), origin="https://ui.example").headers
    app = app_with(cors_origins=("https://ui.example",))
    assert get(app, origin="https://ui.example").headers["access-control-allow-origin"] == "https://ui.example"
    assert get(app, origin="http://localhost:5173").headers["access-control-allow-origin"] == "http://localhost:5173"
    assert "access-control-allow-origin" not in get(app, origin="https://other.example").headers
    anyone = get(app_with(cors_origins=("*",)), origin="https://other.example")
    assert anyone.headers["access-control-allow-origin"] == "*"
    assert "vary" not in anyone.headers


def test_preflight() -> None:
    answer = get(app_with(api_key="k"), "/v1/chat/completions", method="OPTIONS", origin="http://localhost:5173")
    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == "http://localhost:5173"
    assert "POST" in answer.headers["access-control-allow-methods"]
    assert "Authorization" in answer.headers["access-control-allow-headers"]
    asks = {"access_control_request_headers": "authorization,x-stainless-os, x-stainless-lang"}
    foreign = get(app_with(), method="OPTIONS", origin="https://other.example", **asks)
    assert foreign.status == 204
    assert not [name for name in foreign.headers if name.startswith("access-control")]


@pytest.mark.parametrize("origins", [(), ("*",)])
def test_an_allowed_page_may_send_the_headers_of_its_client_library(origins: tuple[str, ...]) -> None:
    app = app_with(cors_origins=origins)
    page = {"method": "OPTIONS", "origin": "http://localhost:5173"}
    asked = "authorization,content-type, x-stainless-os"
    answer = get(app, access_control_request_headers=asked, **page)
    assert answer.headers["access-control-allow-headers"] == asked
    for strange in ("a b", "x: y", "é", ","):
        answer = get(app, access_control_request_headers=strange, **page)
        assert answer.headers["access-control-allow-headers"].startswith("Authorization, ")


def test_api_key() -> None:
    app = app_with(api_key="sécret")
    key = "sécret".encode().decode("latin-1")
    assert get(app, authorization=f"Bearer {key}").status == 200
    assert get(app, authorization=f"bearer  {key}").status == 200
    assert get(app, x_api_key=key).status == 200
    assert get(app, x_api_key="wrong", authorization=f"Bearer {key}").status == 200
    for headers in (
        {},
        {"authorization": f"Basic {key}"},
        {"authorization": "Bearer"},
        {"x_api_key": key[:-1]},
        {"x_api_key": ""},
    ):
        answer = get(app, **headers)
        assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")
        assert answer.error["type"] == "authentication_error"
        assert "cret" not in answer.body.decode()
    assert get(app, method="POST", path="/v1/chat/completions").status == 401
    assert get(app, path="/nowhere").status == 404
    assert get(app_with(), authorization="Bearer anything").status == 200


def test_health_is_public_and_tells_details_only_to_those_with_the_key() -> None:
    app = app_with(api_key="secret")
    assert get(app, "/health").json == {"status": "ok"}
    assert get(app, "/health", x_api_key="secret").json == {"status": "ok", "engine": "running", "queued": 0}
    assert get(app_with(), "/health").json == {"status": "ok", "engine": "running", "queued": 0}
