"""What every family plugin has to hold: the contract as a test class.

    class TestMine(FamilyConformance):
        plugin = colibri_mine
        family = "mine"
        prompts = {"mine-1": DATA / "prompts.json"}
        outputs = {"mine-1": DATA / "outputs.json"}

`prompts` and `outputs` give golden data by variant: a list of cases, or an object with them under `cases`. A prompt case
has `name`, `request` (fields of a chat request, and `add_generation_prompt` or `continue_final_message`) and `rendered`.
An output case has `name`, `tools`, `prompt_tail`, `output`, perhaps `chunks`, and `expected`: content, reasoning (compared
without the blanks at their ends) and tool_calls. `arguments = "schema"` is for families whose calls do not say what type
a value has: arguments are then made to fit the declared types. Needs pytest and hypothesis.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from ..api.openai.cases import parse_case, render_case
from ..chat.answer import Answer
from ..chat.conversation import Conversation, TextPart, Tool, ToolCall, ToolChoice, Turn, TurnOptions
from ..chat.events import Event
from ..chat.output import OutputFormat, OutputParser, merged
from ..chat.prompt import Prompt, Special, Spoken, Text
from ..errors import Refusal
from ..family import Family, Variant
from ..plugins import Plugins
from ..serve.refusals import allowed

#: Pieces of model output that look like some format's markup, whole and cut.
LOOKALIKES = (
    *("<tool_call>", "</tool_call>", "<tool_", "\n", "\n\n", " ", "<think>", "</think>", "<", "</", "é🌧️", "a"),
    *('{"name": "look", "arguments": {"x": "', '"}}', "}", "{", '"', "\\", "\\n", "\\u00e9", '"name"', ": ", ", ", "[1, 2"),
    *("<|im_end|>", "<|open|>", "<|sep|>", "<arg_key>", "<parameter=x>", "```json\n", "```", "true", "-1.5e3", "nul"),
)

#: One parameter of every type.
_TYPES = {"x": "string", "count": "integer", "share": "number", "flag": "boolean", "list": "array", "map": "object"}
_LOOK = {"type": "object", "properties": {name: {"type": type} for name, type in _TYPES.items()}}
TOOLS = tuple(
    Tool(name, {"type": "function", "function": {"name": name, "parameters": _LOOK}}, _LOOK) for name in ("look", "find")
)

#: A busy machine is no fault of the family's.
_patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


class FamilyConformance:
    """Subclass this in a plugin's tests."""

    plugin: ClassVar[Any]
    family: ClassVar[str]
    prompts: ClassVar[Mapping[str, Path]] = {}
    outputs: ClassVar[Mapping[str, Path]] = {}
    arguments: ClassVar[Literal["json", "schema"]] = "json"

    # What is registered.

    def test_the_plugin_registers_the_family(self) -> None:
        family = _family(self)
        plugins = Plugins.of(family)
        names = [variant.name for variant in family.variants()]
        assert names, "a family has at least one variant"
        for name in names:
            assert plugins.variant(name)[1].name == name, f"variant {name!r} is not found by its name"
        for name in (*self.prompts, *self.outputs):
            assert name in names, f"golden data for {name!r}, which is no variant"

    # Prompts.

    def test_prompts_are_those_of_the_official_template(self) -> None:
        family = _family(self)
        variants = {variant.name: variant for variant in family.variants()}
        for name, case in _cases(self.prompts):
            shown = render_case(family, variants[name], case["request"])
            assert shown["text"] == case["rendered"], f"{name}: {case['name']}"

    def test_text_never_becomes_a_control_token(self) -> None:
        @_patient
        @given(st.data())
        def holds(data: st.DataObject) -> None:
            family = _family(self)
            variant = data.draw(st.sampled_from(list(family.variants())))
            texts = data.draw(st.lists(_hostile(family, variant), min_size=6, max_size=6))
            options = _tool_options(variant)
            plain = family.render(variant, _talk(variant, ["x"] * 6), options)
            hostile = family.render(variant, _talk(variant, [f"x{text}x" for text in texts]), options)
            assert _specials(hostile) == _specials(plain), "the texts of a conversation change its control tokens"
            assert _skeleton(hostile) == _skeleton(plain)

        holds()

    def test_a_continued_turn_is_the_closed_one_cut_behind_its_text(self) -> None:
        family = _family(self)
        for variant in family.variants():
            if not variant.capabilities.continuation:
                continue
            turns = (_turn("system", "S"), _turn("user", "U"), _turn("assistant", "A b"))
            talk = Conversation(turns)
            closed = family.render(variant, talk, TurnOptions(cue="none"))
            opened = family.render(variant, talk, TurnOptions(cue="continue"))
            assert opened.text.endswith("A b"), f"{variant.name}: the prompt does not end with the turn's text"
            assert closed.text.startswith(opened.text), f"{variant.name}: an open turn is not a beginning of the closed one"
            format = family.output(variant, talk, TurnOptions(cue="continue"))
            events = _read(format, [" <think>c"], format.state_after(opened.text, TurnOptions(cue="continue")))
            assert [event.kind for event in events] == ["content"], f"{variant.name}: a continued turn goes on in content"

    # Outputs.

    def test_outputs_mean_what_they_should(self) -> None:
        family = _family(self)
        variants = {variant.name: variant for variant in family.variants()}
        for name, case in _cases(self.outputs):
            for output in (case["output"], case.get("chunks") or list(case["output"])):
                seen = parse_case(family, variants[name], {**case, "output": output})
                expected = case["expected"]
                for key in ("content", "reasoning"):
                    assert (seen[key] or "").strip() == (expected[key] or "").strip(), f"{name}: {case['name']}: {key}"
                assert seen["tool_calls"] == expected["tool_calls"], f"{name}: {case['name']}"

    def test_any_cut_gives_the_same_events_and_they_tile_the_output(self) -> None:
        @_patient
        @given(st.data())
        def holds(data: st.DataObject) -> None:
            family = _family(self)
            variant = data.draw(st.sampled_from(list(family.variants())))
            options = data.draw(st.sampled_from([_tool_options(variant), TurnOptions()]))
            tools = TOOLS if variant.capabilities.tools != "none" else ()
            format = family.output(variant, Conversation((), tools), options)
            tokens = data.draw(st.lists(st.sampled_from(_alphabet(family, variant, format)), max_size=14))
            specials = _special_ids(family, variant) if data.draw(st.booleans()) else None
            state = data.draw(st.sampled_from([format.start, "content", *(state for _, state in format.starts)]))
            whole = _read(format, tokens, state, specials, lambda text: [text])
            cut = _read(format, tokens, state, specials, lambda text: _cut(data, text))
            assert cut == whole
            check_events(whole, "".join(tokens))

        holds()

    def test_a_returned_turn_is_rendered_as_it_was_generated(self) -> None:
        @_patient
        @given(st.data())
        def holds(data: st.DataObject) -> None:
            family = _family(self)
            variant = data.draw(st.sampled_from(list(family.variants())))
            options = _tool_options(variant)
            native = variant.capabilities.tools == "native"
            text = data.draw(st.one_of(st.just(""), st.text(min_size=1, max_size=20).map(lambda text: f"a{text}z")))
            calls = data.draw(_calls(self.arguments == "schema")) if native else ()
            talk = Conversation((_turn("user", "U"),), TOOLS if native else ())
            asked = family.render(variant, talk, options)
            turn = Turn("assistant", (TextPart(text),), calls=calls)
            closed = family.render(variant, _with(talk, turn), _cued(options, "none"))
            stops = family.stops(variant, options)
            answer = _behind(closed, asked, stops.specials)
            format = family.output(variant, talk, options)
            specials = _special_ids(family, variant)
            parser = OutputParser(format, format.state_after(asked.text, options), specials)
            events: list[Event] = []
            for piece in answer:
                if isinstance(piece, Special):
                    events += parser.feed(piece.token, specials[piece.token])
                elif isinstance(piece, Text):
                    events += parser.feed(piece.text)
            events += parser.finish()
            read = _turn_of(events)
            assert read.calls == calls
            assert family.render(variant, _with(talk, read), _cued(options, "none")) == closed

        holds()

    def test_a_turn_the_model_wrote_is_rendered_as_its_own_tokens(self) -> None:
        family = _family(self)
        spoken = Spoken((1, 2, 3), "raw")
        for variant in family.variants():
            options = _tool_options(variant)
            native = variant.capabilities.tools == "native"
            calls = (ToolCall("look", {"x": 1}),) if native else ()
            talk = Conversation((_turn("user", "U"),), TOOLS if native else ())
            asked = family.render(variant, talk, options).pieces
            written = _with(talk, _turn("assistant", "shown", calls=calls, spoken=spoken))
            later = family.render(variant, _with(written, _turn("user", "V")), options).pieces
            assert later[: len(asked) + 1] == (*asked, spoken), f"{variant.name}: {later}"

    # Claims.

    def test_claims_hold_and_what_is_not_claimed_is_refused(self) -> None:
        family = _family(self)
        for variant in family.variants():
            claims = variant.capabilities
            talk = Conversation((_turn("user", "U"),), TOOLS)
            plain = family.render(variant, Conversation(talk.turns), TurnOptions())
            if claims.tools == "none":
                with pytest.raises(Refusal):
                    allowed(variant, talk, TurnOptions())
            else:
                _check_tools(family, variant, talk, plain)
            if claims.tools == "fallback":
                with pytest.raises(Refusal):
                    allowed(variant, talk, TurnOptions())
            if claims.thinking == "none":
                for options in (TurnOptions(thinking=True), TurnOptions(effort="high")):
                    with pytest.raises(Refusal):
                        allowed(variant, Conversation(talk.turns), options)
                assert family.render(variant, Conversation(talk.turns), TurnOptions(thinking=False)) == plain
            if not claims.strict_tools:
                with pytest.raises(Refusal):
                    allowed(variant, talk, TurnOptions(strict_tools=True, tool_fallback=True))

    def test_turns_end_where_the_stops_say(self) -> None:
        family = _family(self)
        for variant in family.variants():
            stops = family.stops(variant, TurnOptions())
            assert stops.specials or stops.texts, f"{variant.name}: no turn ever ends"
            talk = Conversation((_turn("user", "U"), _turn("assistant", "A"), _turn("user", "V")))
            closed = family.render(variant, talk, TurnOptions(cue="none"))  # some turns end with the next one's marker
            opened = family.render(variant, Conversation(talk.turns[:1]), TurnOptions())
            rest = closed.text[len(opened.text) :]
            if rest:
                ends = (*stops.specials, *stops.texts)
                assert any(end in rest for end in ends), f"{variant.name}: the end of a turn, {rest!r}, holds no stop"


def check_events(events: Sequence[Event], raw: str) -> None:
    """The events of an output stand for each of its characters once, and its calls are made of whole parts."""
    at = 0
    arguments: dict[int, list[str]] = {}
    running = -1
    for event in events:
        assert event.span[0] == at, f"{event} does not begin where the one before it ends ({at})"
        assert event.span[1] >= at
        at = event.span[1]
        if event.kind in ("content", "reasoning"):
            assert event.text == raw[event.span[0] : at], f"{event} shows other text than was written"
        elif event.kind == "tool_start":
            assert running == -1
            assert event.call == len(arguments)
            running = event.call
            arguments[running] = []
        elif event.kind == "tool_args":
            assert event.call == running != -1, f"{event} belongs to no call"
            arguments[running].append(event.text)
        elif event.kind == "tool_end":
            assert event.call == running != -1, f"{event} belongs to no call"
            assert isinstance(json.loads("".join(arguments[running])), dict)
            running = -1
        elif event.kind == "tool_cut":
            assert event.call == running
            assert raw[:at].endswith(event.text)
            running = -1
    assert at == len(raw), "the events do not reach the end of the output"
    assert running == -1, "a call neither ended nor was cut"


def registered(plugin: Any, name: str) -> Family:
    """The family that a plugin registers under a name."""
    found: dict[str, Family] = {}

    def register(family: Any, *, replace: str | None = None) -> None:
        found[family.name] = family

    plugin.register_families(register)
    assert name in found, f"the plugin registers {list(found)}, not {name!r}"
    return found[name]


def _family(test: FamilyConformance) -> Family:
    return registered(test.plugin, test.family)


def _cases(files: Mapping[str, Path]) -> list[tuple[str, dict[str, Any]]]:
    cases: list[tuple[str, dict[str, Any]]] = []
    for name, file in files.items():
        data = json.loads(file.read_text(encoding="utf-8"))
        cases += [(name, case) for case in (data["cases"] if isinstance(data, dict) else data)]
    return cases


def _turn(role: Any, text: str, **fields: Any) -> Turn:
    return Turn(role, (TextPart(text),), **fields)


def _with(talk: Conversation, turn: Turn) -> Conversation:
    return Conversation((*talk.turns, turn), talk.tools)


def _cued(options: TurnOptions, cue: Any) -> TurnOptions:
    return TurnOptions(cue=cue, tool_fallback=options.tool_fallback)


def _tool_options(variant: Variant) -> TurnOptions:
    return TurnOptions(tool_fallback=variant.capabilities.tools == "fallback")


def _talk(variant: Variant, texts: Sequence[str]) -> Conversation:
    """A conversation in which each of six texts stands where a client may put text."""
    system, user, said, argument, result, last = texts
    turns = [_turn("system", system), _turn("user", user)]
    if variant.capabilities.tools == "none":
        turns += [_turn("assistant", said + argument), _turn("user", result + last)]
        return Conversation(tuple(turns))
    calls = (ToolCall("look", {"x": argument}, "call_1"),)
    turns += [_turn("assistant", said, calls=calls), _turn("tool", result, call_id="call_1"), _turn("user", last)]
    return Conversation(tuple(turns), TOOLS)


def _specials(prompt: Prompt) -> list[str]:
    return [piece.token for piece in prompt.pieces if isinstance(piece, Special)]


def _skeleton(prompt: Prompt) -> list[type]:
    """The kinds of the pieces that are no text: what is text may stand elsewhere, where a template splits it."""
    return [type(piece) for piece in prompt.pieces if not isinstance(piece, Text)]


def _special_ids(family: Family, variant: Variant) -> dict[str, int]:
    """An id for each control token the family's prompts and stops use."""
    talk, options = _talk(variant, ["x"] * 6), _tool_options(variant)
    prompt = family.render(variant, talk, options)
    answer = family.render(variant, Conversation(talk.turns[:3], talk.tools), _cued(options, "none"))
    spellings = [*_specials(prompt), *_specials(answer), *family.stops(variant, TurnOptions()).specials]
    return {spelling: 1000 + n for n, spelling in enumerate(dict.fromkeys(spellings))}


def _hostile(family: Family, variant: Variant) -> SearchStrategy[str]:
    spellings = [*_special_ids(family, variant), *family.stops(variant, TurnOptions()).texts, *LOOKALIKES]
    return st.lists(st.sampled_from(spellings) | st.text(max_size=3), max_size=4).map("".join)


def _alphabet(family: Family, variant: Variant, format: OutputFormat) -> list[str]:
    markers = [marker for _, marker in format.moves if marker]
    halves = [marker[: len(marker) // 2] for marker in markers] + [marker[len(marker) // 2 :] for marker in markers]
    return [*dict.fromkeys([*LOOKALIKES, *_special_ids(family, variant), *markers, *filter(None, halves)])]


def _cut(data: st.DataObject, text: str) -> list[str]:
    at = data.draw(st.integers(0, len(text)))
    return [text[:at], text[at:]]


def _read(
    format: OutputFormat,
    tokens: Sequence[str],
    state: str,
    specials: Mapping[str, int] | None = None,
    cut: Any = None,
) -> list[Event]:
    parser = OutputParser(format, state, specials)
    events: list[Event] = []
    for token in tokens:
        if specials is not None and token in specials:
            events += parser.feed(token, specials[token])
        else:
            for text in cut(token) if cut is not None else [token]:
                events += parser.feed(text)
    return merged([*events, *parser.finish()])


@st.composite
def _calls(draw: DrawFn, typed: bool) -> tuple[ToolCall, ...]:
    text, whole = st.text(max_size=8), st.integers(-(2**53), 2**53)
    number = whole | st.floats(allow_nan=False, allow_infinity=False)
    leaf = st.none() | st.booleans() | number | text
    value = st.recursive(leaf, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3))
    arguments = st.dictionaries(text, value, max_size=3)
    if typed:
        lists, maps = st.lists(value, max_size=3), arguments
        kinds: dict[str, SearchStrategy[Any]] = {
            "x": text,
            "count": whole,
            "share": number,
            "flag": st.booleans(),
            "list": lists,
            "map": maps,
        }
        arguments = st.fixed_dictionaries({}, optional=kinds)
    names = draw(st.lists(st.sampled_from(["look", "find"]), max_size=3))
    return tuple(ToolCall(name, draw(arguments)) for name in names)


def _behind(closed: Prompt, asked: Prompt, stops: Sequence[str]) -> list[Special | Text]:
    """What the model writes between the prompt `asked` and the end of its turn in `closed`."""
    assert closed.text.startswith(asked.text), "the prompt of a turn is not a beginning of the finished one"
    skip = len(asked.text)
    pieces: list[Special | Text] = []
    for piece in closed.pieces:
        assert isinstance(piece, (Special, Text))
        text = piece.text if isinstance(piece, Text) else piece.token
        if skip >= len(text):
            skip -= len(text)
            continue
        if isinstance(piece, Special) and piece.token in stops:
            break
        pieces.append(Text(piece.text[skip:]) if isinstance(piece, Text) else piece)
        skip = 0
    return pieces


def _turn_of(events: Sequence[Event]) -> Turn:
    """The turn a client would send back."""
    answer = Answer(events)
    calls = tuple(ToolCall(name, json.loads(arguments)) for name, arguments in answer.made())
    return Turn("assistant", (TextPart(answer.shown),), answer.reasoning or None, calls)


def _check_tools(family: Family, variant: Variant, talk: Conversation, plain: Prompt) -> None:
    claims = variant.capabilities
    fallback = claims.tools == "fallback"

    def rendered(mode: Any, name: str | None = None) -> str:
        options = TurnOptions(tool_choice=ToolChoice(mode, name), tool_fallback=fallback)
        allowed(variant, talk, options)
        return family.render(variant, talk, options).text

    declared = rendered("auto")
    assert "look" in declared, f"{variant.name}: tools are not declared"
    assert "find" in declared, f"{variant.name}: tools are not declared"
    forbidden = rendered("none")  # some templates have words for it, and declare the tools all the same
    assert forbidden == plain.text or forbidden != declared, f"{variant.name}: tools that may not be called are declared"
    if claims.tool_choice != "none":
        assert rendered("required") != declared, f"{variant.name}: a demand for a call changes nothing"
        assert rendered("named", "look") != declared, f"{variant.name}: a named tool changes nothing"
    if claims.tool_choice == "narrow":
        assert "find" not in rendered("named", "look"), f"{variant.name}: the tools are not narrowed to the named one"
