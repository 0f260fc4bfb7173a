"""Which tools a turn may use, and how a demand for a call is put into words."""

from __future__ import annotations

from .conversation import Conversation, Tool, TurnOptions

#: What a prompt says, inside its tool block, when the client demands a call.
DEMAND = "You must call one of the functions above. Do not answer directly."


def active_tools(conversation: Conversation, options: TurnOptions) -> tuple[Tool, ...]:
    """The tools to declare: none if none may be called, the named one if one is named, else all."""
    choice = options.tool_choice
    if choice.mode == "none":
        return ()
    return tuple(tool for tool in conversation.tools if choice.mode != "named" or tool.name == choice.name)


def demands_call(options: TurnOptions) -> bool:
    """Whether the client demands that a tool is called."""
    return options.tool_choice.mode in ("required", "named")
