"""Where later prompts part from one."""

from __future__ import annotations

from colibri.chat.conversation import Conversation, TextPart, Tool, Turn, TurnOptions
from colibri.chat.prompt import Piece, Prompt, Special, prompt
from colibri.errors import BadRequest
from colibri.serve.ways_back import ways_back

from .conftest import assistant, user


def render(conversation: Conversation, options: TurnOptions) -> Prompt:
    """Turns between control tokens; answers begin with a thought that is gone from past ones."""
    pieces: list[Piece | str] = [tool.name for tool in conversation.tools]
    for turn in conversation.turns:
        pieces += [Special(f"<{turn.role}>"), turn.text, Special("<end>")]
    if options.cue == "new":
        pieces += [Special("<assistant>"), Special("<think>")]
    return prompt(pieces)


def system(text: str) -> Turn:
    return Turn("system", (TextPart(text),))


def found(conversation: Conversation, options: TurnOptions | None = None) -> list[str]:
    options = options or TurnOptions()
    made = render(conversation, options)
    return [Prompt(made.pieces[:count]).text for count in ways_back(render, conversation, options, made)]


def test_a_prompt_parts_behind_its_opening_and_before_its_cue() -> None:
    talk = Conversation((system("S"), user("A"), assistant("B"), user("C")), (Tool("t", {}),))
    opening = "t<system>S<end><user>"
    assert found(talk) == [opening, f"{opening}A<end><assistant>B<end><user>C<end>"]


def test_without_an_opening_conversations_share_what_every_prompt_begins_with() -> None:
    assert found(Conversation((user("A"),))) == ["<user>", "<user>A<end>"]


def test_an_open_turn_has_no_cue() -> None:
    talk = Conversation((user("A"), assistant("B")))
    assert found(talk, TurnOptions(cue="continue")) == ["<user>"]


def test_what_cannot_be_said_is_no_way_back() -> None:
    def picky(conversation: Conversation, options: TurnOptions) -> Prompt:
        if options.cue == "none":
            raise BadRequest("no")
        return render(conversation, options)

    talk = Conversation((user("A"),))
    assert ways_back(picky, talk, TurnOptions(), render(talk, TurnOptions())) == (1,)
