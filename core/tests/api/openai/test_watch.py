"""GET /experts and GET /profile."""

from __future__ import annotations

from colibri.api.app import build
from colibri.compute.runtime import Phases
from colibri.engine.figures import Figures
from colibri.engine.frames import ExpertMap, Profile, Tiers
from colibri.settings import Settings

from ...http.fake import Answer, ask, request
from ..fake import FakeService

NO_EXPERTS = {"rows": 0, "cols": 0, "map": "", "hits": "", "seq": 0}


def get(service: FakeService, path: str, key: str | None = None, **headers: str) -> Answer:
    (answer,) = ask(build(service, Settings(api_key=key)), request("GET", path, **headers))
    return answer


def told() -> FakeService:
    service = FakeService()
    figures = (
        Figures().with_frame(Tiers(2, 7, 10, 20)).with_frame(ExpertMap(3, 3, bytes([65, 131, 0, 0, 64, 128, 2, 3, 255])))
    )
    profile = Profile(2.5, 30, 7, Phases(attention=0.5, experts=1.0, head=0.1, other=0.2, waited=0.4, reading=0.9, steps=8))
    service.told = figures.with_frame(profile)
    return service


def test_before_anything_is_told_the_shape_is_there() -> None:
    service = FakeService()
    assert get(service, "/experts").json == NO_EXPERTS
    assert get(service, "/profile").json == {"seq": 0, "turns": []}


def test_the_map_has_tier_and_heat_and_hits_are_a_bitmap() -> None:
    body = get(told(), "/experts").json
    assert body == {"rows": 3, "cols": 3, "map": "410300004000" + "02037f", "hits": "2201", "seq": 1}


def test_a_profile_is_made_of_seconds_and_counts() -> None:
    body = get(told(), "/profile").json
    assert body["seq"] == 1
    assert body["turns"] == [
        {
            "wall_s": 2.5,
            "expert_disk_s": 0.9,
            "expert_wait_s": 0.4,
            "expert_matmul_s": 0.6,
            "attention_s": 0.5,
            "lm_head_s": 0.1,
            "other_s": 0.2,
            "prompt_tokens": 30,
            "completion_tokens": 7,
            "forwards": 8,
        }
    ]


def test_without_the_key_there_is_only_the_shape() -> None:
    assert get(told(), "/experts", key="secret").json == NO_EXPERTS
    assert get(told(), "/profile", key="secret").json == {"seq": 0, "turns": []}
