"""A trailing assistant message is to be continued, not answered: when that holds, and what may then be asked."""

from __future__ import annotations

from ..chat.conversation import Conversation, TurnOptions
from ..chat.tools import active_tools
from ..errors import BadRequest, Refusal
from ..family import Capabilities


def continues(conversation: Conversation, options: TurnOptions, capabilities: Capabilities, *, enabled: bool) -> bool:
    """Whether the last assistant turn is left open for the model to go on in.

    `enabled` is the server's switch; without it, or where the variant has no open turns, the turn is a completed one
    and a new one follows. Raises BadRequest or Refusal for a turn that can't be continued.
    """
    turns = conversation.turns
    if not turns or turns[-1].role != "assistant" or not enabled or not capabilities.continuation:
        return False
    param, last = f"messages.{len(turns) - 1}", turns[-1]
    if active_tools(conversation, options):
        raise Refusal(
            "A trailing assistant message can't be continued while `tools` may be called: calls are read from the "
            "start of a turn. Leave out `tools`, or end with a message of another role.",
            param="tools",
        )
    if last.calls:
        raise BadRequest(
            "A trailing assistant message with tool calls can't be continued. Send the tool results after it.",
            code="unsupported_value",
            param=f"{param}.tool_calls",
        )
    if len(turns) == 1:
        raise BadRequest("An assistant message alone can't be continued: put a message before it.", param="messages")
    text = last.text
    if not text.strip():
        raise BadRequest("A trailing assistant message must have text to be continued.", param=f"{param}.content")
    if text != text.rstrip():
        raise BadRequest(
            "A trailing assistant message to be continued must not end in white space: the model would go on from "
            "other text than was sent.",
            param=f"{param}.content",
        )
    return True
