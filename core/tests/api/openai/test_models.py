"""The model list, as three dialects read it, and /health."""

from __future__ import annotations

from colibri.api.app import App, build
from colibri.api.message import Reply, Request
from colibri.family import Capabilities
from colibri.settings import Settings

from ...http.fake import Answer, ask, request
from ..fake import FakeService


def get(service: FakeService, path: str) -> Answer:
    (answer,) = ask(build(service, Settings()), request("GET", path))
    return answer


def test_list_speaks_three_dialects() -> None:
    service = FakeService(capabilities=Capabilities(tools="native", thinking="optional", efforts=("low", "high")))
    body = get(service, "/v1/models?limit=1000").json
    (entry,) = body["data"]
    assert (body["object"], body["has_more"], body["first_id"], body["last_id"]) == ("list", False, "tiny", "tiny")
    assert (entry["id"], entry["object"], entry["created"], entry["owned_by"]) == ("tiny", "model", 1_700_000_000, "colibri")
    assert (entry["type"], entry["display_name"], entry["created_at"]) == ("model", "Fake 1", "2023-11-14T22:13:20Z")
    assert body["models"] == [{"name": "tiny", "description": "Fake 1", "release_date": "2023-11-14"}]
    assert entry["capabilities"] == ["chat", "completions", "tools", "reasoning"]
    assert entry["input_modalities"] == ["text"]
    assert entry["variant"]["name"] == "fake1"
    assert entry["variant"]["efforts"] == ["low", "high"]


def test_one_model() -> None:
    service = FakeService()
    assert get(service, "/v1/models/tiny").json == get(service, "/v1/models").json["data"][0]
    service.model_id = "org/tiny 1"
    assert get(service, "/v1/models/org%2Ftiny%201").json["id"] == "org/tiny 1"
    assert get(service, "/v1/models/org/tiny%201").json["id"] == "org/tiny 1"
    answer = get(service, "/v1/models/other")
    assert (answer.status, answer.error["code"], answer.error["param"]) == (404, "model_not_found", "model")


def test_health() -> None:
    service = FakeService()
    assert get(service, "/health").status == 200
    service.well = False
    answer = get(service, "/health")
    assert answer.status == 503
    assert answer.json == {"status": "error", "engine": "restarting", "queued": 0}


def test_plugins_may_add_routes() -> None:
    class Plugins:
        def routes(self, app: App) -> None:
            async def hello(asked: Request) -> Reply:
                return Reply(body=asked.params["name"].encode(), content_type="text/plain")

            app.route("GET", "/x/mine/{name}", hello)

    (answer,) = ask(build(FakeService(), Settings(), Plugins()), request("GET", "/x/mine/ann"))
    assert (answer.body, answer.headers["content-type"]) == (b"ann", "text/plain")
