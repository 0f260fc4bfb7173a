"""What the gateway knows of how its engine works: the latest of what it told."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from .frames import ExpertMap, Profile, Tiers

#: Answers whose profiles are kept.
TURNS = 120


class Figures(Struct, frozen=True):
    """`experts_seq` and `profiles_seq` count what came since the gateway was started."""

    tiers: Tiers | None = None
    experts: ExpertMap | None = None
    experts_seq: int = 0
    profiles: tuple[Profile, ...] = ()
    profiles_seq: int = 0

    def with_frame(self, frame: Tiers | ExpertMap | Profile) -> Figures:
        """With what a frame tells."""
        if isinstance(frame, Tiers):
            return replace(self, tiers=frame)
        if isinstance(frame, ExpertMap):
            return replace(self, experts=frame, experts_seq=self.experts_seq + 1)
        return replace(self, profiles=(*self.profiles[-(TURNS - 1) :], frame), profiles_seq=self.profiles_seq + 1)
