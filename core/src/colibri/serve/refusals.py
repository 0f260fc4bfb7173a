"""What a request asks for and its model does not claim: refused by name, before anything is rendered."""

from __future__ import annotations

from msgspec.structs import replace

from ..chat.conversation import Conversation, MediaPart, TurnOptions
from ..chat.thinking import nearest_effort
from ..chat.tools import active_tools, demands_call
from ..errors import BadRequest, Refusal
from ..family import Variant


def allowed(variant: Variant, conversation: Conversation, options: TurnOptions) -> TurnOptions:
    """The options to render with. Raises Refusal for the first thing that `variant` does not claim, or
    BadRequest for a demand that the declared tools can't meet."""
    _inputs(variant, conversation)
    _tools(variant, conversation, options)
    return _thinking(variant, options)


def _inputs(variant: Variant, conversation: Conversation) -> None:
    claimed = variant.capabilities.inputs
    for number, turn in enumerate(conversation.turns):
        for place, part in enumerate(turn.content or ()):
            if isinstance(part, MediaPart) and part.kind not in claimed:
                raise Refusal(
                    f"{variant.title} does not take {part.kind} input; it takes {' and '.join(claimed)}.",
                    code="unsupported_content_type",
                    param=f"messages.{number}.content.{place}",
                )


def _tools(variant: Variant, conversation: Conversation, options: TurnOptions) -> None:
    claims, choice = variant.capabilities, options.tool_choice
    if conversation.tools and choice.mode != "none":
        if claims.tools == "none":
            raise Refusal(f"{variant.title} does not support tools. Leave out `tools`.", param="tools")
        if claims.tools == "fallback" and not options.tool_fallback:
            raise Refusal(
                f"{variant.title} has no tool format of its own. Start the server with --tool-fallback to have tools "
                "described in the prompt.",
                param="tools",
            )
    _tool_history(variant, conversation, options)
    if demands_call(options):
        if claims.tools == "none" or claims.tool_choice == "none":
            raise Refusal(
                f"{variant.title} can't be told to call a tool: `tool_choice` must be auto or none.", param="tool_choice"
            )
        if not active_tools(conversation, options):
            wanted = f"names {choice.name!r}, which is not in" if choice.mode == "named" else "demands a call without"
            raise BadRequest(f"`tool_choice` {wanted} `tools`.", param="tool_choice")
    if options.strict_tools and not claims.strict_tools:
        raise Refusal(f"{variant.title} does not support strict tool calls.", param="strict_tool_calls")


def _tool_history(variant: Variant, conversation: Conversation, options: TurnOptions) -> None:
    """Past calls and results need words as well."""
    tools = variant.capabilities.tools
    if tools == "native" or (tools == "fallback" and options.tool_fallback):
        return
    advice = "Start the server with --tool-fallback, or leave" if tools == "fallback" else "Leave"
    for number, turn in enumerate(conversation.turns):
        if turn.role == "tool" or turn.calls:
            part = "" if turn.role == "tool" else ".tool_calls"
            raise Refusal(
                f"{variant.title} has no format for tool calls and their results. {advice} such messages out.",
                param=f"messages.{number}{part}",
            )


def _thinking(variant: Variant, options: TurnOptions) -> TurnOptions:
    claims = variant.capabilities
    if options.effort is not None:
        if claims.thinking == "none":
            raise Refusal(
                f"{variant.title} does not think: leave out `reasoning_effort` or set it to none.", param="reasoning_effort"
            )
        # Any effort but none means: think.
        thinking = True if options.thinking is None else options.thinking
        options = replace(options, effort=nearest_effort(options.effort, claims.efforts), thinking=thinking)
    if options.thinking and claims.thinking == "none":
        raise Refusal(f"{variant.title} does not think: `enable_thinking` can't be true.", param="enable_thinking")
    if options.thinking is False and claims.thinking == "always":
        if not claims.efforts:
            raise Refusal(f"{variant.title} always thinks: `enable_thinking` can't be false.", param="enable_thinking")
        options = replace(options, thinking=None, effort=claims.efforts[0])  # as little as there is
    if options.preserve_thinking and not claims.preserve:
        raise Refusal(f"{variant.title} does not keep past reasoning.", param="preserve_thinking")
    return options
