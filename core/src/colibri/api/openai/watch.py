"""GET /experts and GET /profile: how the engine works, for dashboards. Anyone may ask; the key opens the figures."""

from __future__ import annotations

from ...engine.frames import Profile
from ...serve.request import Service
from ..message import Reply, Request, json_reply

_CHOSEN, _PLACE = 128, 127


class Experts:
    """`map`: two hex digits an expert, its tier (0 disk, 1 memory) in the upper two bits and below the binary digits of how
    often it was chosen. `hits`: hex of a bitmap, expert i is bit i & 7 of byte i >> 3, of those chosen since the map before,
    whose number was `seq` - 1."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, request: Request) -> Reply:
        figures = self._service.figures()
        latest = figures.experts
        if latest is None or not request.authenticated:
            return json_reply({"rows": 0, "cols": 0, "map": "", "hits": "", "seq": 0})
        hits = bytearray((len(latest.map) + 7) // 8)
        for expert, byte in enumerate(latest.map):
            if byte & _CHOSEN:
                hits[expert >> 3] |= 1 << (expert & 7)
        places = bytes(byte & _PLACE for byte in latest.map)
        shape = {"rows": latest.rows, "cols": latest.cols}
        return json_reply({**shape, "map": places.hex(), "hits": hits.hex(), "seq": figures.experts_seq})


class Profiles:
    """The latest answers, the newest last."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, request: Request) -> Reply:
        figures = self._service.figures()
        if not request.authenticated:
            return json_reply({"seq": 0, "turns": []})
        return json_reply({"seq": figures.profiles_seq, "turns": [_turn(profile) for profile in figures.profiles]})


def _turn(profile: Profile) -> dict[str, float | int]:
    phases = profile.phases
    seconds = {
        "wall_s": profile.wall,
        "expert_disk_s": phases.reading,
        "expert_wait_s": phases.waited,
        "expert_matmul_s": max(0.0, phases.experts - phases.waited),
        "attention_s": phases.attention,
        "lm_head_s": phases.head,
        "other_s": phases.other,
    }
    counts = {"prompt_tokens": profile.prompt, "completion_tokens": profile.completion, "forwards": phases.steps}
    return {**{name: round(value, 6) for name, value in seconds.items()}, **counts}
