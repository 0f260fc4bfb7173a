"""The turn that a prompt leaves open, for the model to go on in."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import BadRequest
from .conversation import Turn, TurnOptions


def check_open_turn(turns: Sequence[Turn], options: TurnOptions) -> None:
    """Raises BadRequest if the last turn is to be continued and is no answer that can be: one without calls."""
    if options.cue == "continue" and (not turns or turns[-1].role != "assistant" or turns[-1].calls):
        raise BadRequest("Only an assistant message without tool calls can be continued.", param="messages")


def is_open_turn(turns: Sequence[Turn], index: int, options: TurnOptions) -> bool:
    """Whether the turn at `index` is the one left open."""
    return options.cue == "continue" and index == len(turns) - 1
