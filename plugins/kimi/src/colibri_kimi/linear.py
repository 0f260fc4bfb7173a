"""How Kimi Linear's prompts are written: the template of Kimi K2, piece by piece.

Kimi Linear has the control tokens of Kimi K2's format, those for calls included, and is served with its parser of calls.
Calls go by ids, `functions.NAME:N`, where N counts the calls of the whole conversation; results name the call they answer,
in the order of the calls. The ids that clients have for them appear nowhere.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from colibri.chat.conversation import Conversation, MediaPart, Tool, Turn, TurnOptions
from colibri.chat.jsontext import dumps
from colibri.chat.prompt import Piece, Prompt, Special, prompt
from colibri.chat.tools import DEMAND, active_tools, demands_call
from colibri.errors import BadRequest

SYSTEM = Special("<|im_system|>")
USER = Special("<|im_user|>")
ASSISTANT = Special("<|im_assistant|>")
MIDDLE = Special("<|im_middle|>")
END = Special("<|im_end|>")
SECTION = Special("<|tool_calls_section_begin|>")
SECTION_END = Special("<|tool_calls_section_end|>")
CALL = Special("<|tool_call_begin|>")
ARGUMENT = Special("<|tool_call_argument_begin|>")
CALL_END = Special("<|tool_call_end|>")

#: The system text of a conversation that does not begin with one.
PERSONA = "You are Kimi, an AI assistant created by Moonshot AI."

_OPENERS = {"user": USER, "assistant": ASSISTANT}


def render(conversation: Conversation, options: TurnOptions) -> Prompt:
    """The prompt of a conversation. Raises BadRequest for media, and for a continuation of what is no open answer."""
    turns = conversation.turns
    for number, turn in enumerate(turns):
        if any(isinstance(part, MediaPart) for part in turn.content or ()):
            raise BadRequest("Kimi Linear reads only text.", param=f"messages.{number}.content")
    if options.cue == "continue" and (not turns or turns[-1].role != "assistant" or turns[-1].calls):
        raise BadRequest("Only an assistant message without tool calls can be continued.", param="messages")
    return prompt(_pieces(turns, active_tools(conversation, options), options))


def _pieces(turns: Sequence[Turn], tools: Sequence[Tool], options: TurnOptions) -> Iterator[Piece | str]:
    if tools:
        yield from _open("system", "tool_declare")
        yield dumps([tool.declaration for tool in tools])
        if demands_call(options):
            yield "\n" + DEMAND
        yield END
    if turns and turns[0].role != "system":
        yield from _open("system", "system")
        yield PERSONA
        yield END
        yield "\n"
    yield from _turns(turns, open_end=options.cue == "continue")
    if options.cue == "new":
        yield from _open("assistant", "assistant")


def _turns(turns: Sequence[Turn], *, open_end: bool) -> Iterator[Piece | str]:
    made = 0
    unanswered: deque[str] = deque()  # the ids of the calls that have no result yet
    for number, turn in enumerate(turns):
        is_open = open_end and number == len(turns) - 1
        spoken = None if is_open else turn.spoken
        yield from _open(turn.role, turn.role if spoken else turn.name or turn.role)
        if turn.role == "tool":
            name = "unknown" if turn.name is None else turn.name
            id = unanswered.popleft() if unanswered else f"functions.{name}:{made}"
            yield f"## Return of {id}\n"
        ids = _ids(turn, made)
        made += len(ids)
        unanswered += ids
        yield spoken or turn.text
        if turn.calls and not spoken:
            yield from _calls(turn, ids)
        if not is_open:
            yield END


def _ids(turn: Turn, made: int) -> list[str]:
    """The ids of a turn's calls, of which `made` others come before: as the model wrote them, if it is known and wrote
    one for each, so that the results name no other."""
    written = turn.spoken.text.split(CALL.token)[1:] if turn.spoken else []
    ids = [call.partition(ARGUMENT.token)[0].strip() for call in written if ARGUMENT.token in call]
    if len(ids) == len(turn.calls):
        return ids
    return [f"functions.{call.name}:{number}" for number, call in enumerate(turn.calls, made)]


def _calls(turn: Turn, ids: Sequence[str]) -> Iterator[Piece | str]:
    yield SECTION
    for id, call in zip(ids, turn.calls, strict=True):
        yield CALL
        yield id
        yield ARGUMENT
        yield call.arguments if isinstance(call.arguments, str) else dumps(call.arguments)
        yield CALL_END
    yield SECTION_END


def _open(role: str, name: str) -> Iterator[Piece | str]:
    yield _OPENERS.get(role, SYSTEM)
    yield name
    yield MIDDLE
