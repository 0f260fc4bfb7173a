"""How much to think: the clients' words for it, and what is done where a client says nothing."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ..family import Capabilities
from .conversation import TurnOptions

#: The words of the protocols, weakest first.
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


def nearest_effort(word: str, efforts: Sequence[str]) -> str | None:
    """The family's word for an effort: the same, else its weakest one that is no weaker, else its strongest. So more is
    never less, whichever words a family knows. None for a family that knows none."""
    if word in efforts or not efforts:
        return word if word in efforts else None
    known = [effort for effort in efforts if effort in EFFORTS]
    if word not in EFFORTS or not known:
        return efforts[-1]
    return next((effort for effort in known if EFFORTS.index(effort) >= EFFORTS.index(word)), known[-1])


def with_defaults(options: TurnOptions, claims: Capabilities, think: bool | None) -> TurnOptions:
    """The options where the client left them open: `think` is the server's wish, before what the variant does unasked.

    Past turns keep what they thought where nothing is thought now: they were generated behind the empty block that they
    are then rendered with, so that the engine goes on from what it holds.
    """
    if claims.thinking == "optional" and options.thinking is None and options.effort is None:
        options = replace(options, thinking=claims.thinks if think is None else think)
    if claims.preserve and options.thinking is False and options.preserve_thinking is None:
        options = replace(options, preserve_thinking=True)
    return options
