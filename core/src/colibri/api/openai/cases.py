"""Chat requests and outputs as files of cases spell them, for the debug commands and the test kit."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ...chat.asking import ask
from ...chat.conversation import Conversation, TextPart, Tool, ToolCall, Turn, TurnOptions
from ...chat.detokenizer import Run
from ...chat.events import Event
from ...chat.output import OutputFormat, OutputParser
from ...chat.prompt import Media, Piece, Prompt, Special, Text
from ...chat.reader import Reader
from ...chat.stops import StopFilter, StopText
from ...chat.tokenizer import Tokenizer
from ...errors import BadRequest
from ...family import Family, Stops, Variant
from .chat import message_of
from .messages import decode_messages, decode_tool_choice, decode_tools

Case = Mapping[str, Any]


def render_case(family: Family, variant: Variant, case: Case, tokenizer: Tokenizer | None = None) -> dict[str, Any]:
    """A chat request -> `text`, `pieces` and, with a tokenizer, `ids`.

    Besides the fields of the API, `add_generation_prompt` and `continue_final_message` choose how the prompt ends, and
    what templates call their options is understood, also inside `chat_template_kwargs`. Roles reach the family as given.
    Raises BadRequest.
    """
    turns = decode_messages(case.get("messages"))
    conversation, options = _request(case, turns)
    prompt = ask(family, lambda family: family.render(variant, conversation, options), Prompt)
    shown = {"text": prompt.text, "pieces": [_piece(piece) for piece in prompt.pieces]}
    return shown if tokenizer is None else {**shown, "ids": tokenizer.encode(prompt)}


def parse_case(family: Family, variant: Variant, case: Case, tokenizer: Tokenizer | None = None) -> dict[str, Any]:
    """An output -> `content`, `reasoning`, `tool_calls` and `finish`, as a client would get them.

    `output` is the text or a list of chunks; with a tokenizer, `ids` may take its place. `segments`, objects with `text`
    and `special`, tell control tokens from the same characters: only the former are markers then. `prompt_tail` is how the
    prompt ended, `tools` what was declared, `finish` why the model stopped (default: stop). Raises BadRequest.
    """
    conversation, options = _request(case, ())
    format = ask(family, lambda family: family.output(variant, conversation, options), OutputFormat)
    stops = ask(family, lambda family: family.stops(variant, options), Stops)
    tail = _string(case, "prompt_tail")
    runs = _runs(case)
    specials = _controls(family, variant, runs) if "segments" in case else None
    events, stopped = _events(case, runs, format, stops, options, tail, tokenizer, specials)
    message = message_of(events)
    calls = [call["function"] for call in message.get("tool_calls", ())]
    return {
        "content": message["content"] or None,
        "reasoning": message.get("reasoning_content"),
        "tool_calls": [{"name": call["name"], "arguments": json.loads(call["arguments"])} for call in calls],
        "finish": "tool_calls" if calls else "stop" if stopped else _string(case, "finish") or "stop",
    }


def _request(case: Case, turns: Sequence[Any]) -> tuple[Conversation, TurnOptions]:
    tools = decode_tools(case.get("tools") or None)
    return Conversation(tuple(turns), tools), _options(case, tools)


def _options(case: Case, tools: Sequence[Any]) -> TurnOptions:
    inner = case.get("chat_template_kwargs")
    words: Case = {**case, **inner} if isinstance(inner, dict) else case
    thinking = _flag(words, "enable_thinking")
    if thinking is None:
        thinking = _flag(words, "thinking")
    if words.get("thinking_mode") in ("chat", "thinking"):
        thinking = words["thinking_mode"] == "thinking"
    effort = _string(words, "reasoning_effort") or _string(words, "thinking_effort") or None
    preserve = _flag(words, "preserve_thinking")
    for name in ("clear_thinking", "drop_thinking"):
        if preserve is None and (drops := _flag(words, name)) is not None:
            preserve = not drops
    continues = _flag(words, "continue_final_message")
    opens = _flag(words, "add_generation_prompt")
    return TurnOptions(
        cue="continue" if continues else "none" if opens is False else "new",
        thinking=False if effort == "none" and thinking is None else thinking,
        effort=None if effort == "none" else effort,
        preserve_thinking=preserve,
        tool_choice=decode_tool_choice(case.get("tool_choice"), tuple(tools)),
        tool_fallback=_flag(words, "tool_fallback") or False,
    )


def _flag(case: Case, name: str) -> bool | None:
    value = case.get(name)
    if value is not None and not isinstance(value, bool):
        raise BadRequest(f"`{name}` must be true or false", param=name)
    return value


def _string(case: Case, name: str) -> str:
    value = case.get(name)
    if value is not None and not isinstance(value, str):
        raise BadRequest(f"`{name}` must be a string", param=name)
    return value or ""


def _piece(piece: Piece) -> dict[str, Any]:
    if isinstance(piece, Text):
        return {"text": piece.text}
    if isinstance(piece, Special):
        return {"special": piece.token}
    assert isinstance(piece, Media), "a case has no turns that a model of ours has written"
    return {"media": piece.ref}


def _runs(case: Case) -> list[tuple[str, bool]]:
    """The pieces of an output, with whether each is a control token."""
    if "ids" in case:
        return []
    output, segments = case.get("output"), case.get("segments")
    chunks = [output] if isinstance(output, str) else output
    if segments is None:
        if not isinstance(chunks, list) or not all(isinstance(chunk, str) for chunk in chunks):
            raise BadRequest("`output` must be a text or a list of texts", param="output")
        return [(chunk, False) for chunk in chunks]
    if not isinstance(segments, list) or not all(
        isinstance(part, dict) and isinstance(part.get("text"), str) and isinstance(part.get("special"), bool)
        for part in segments
    ):
        raise BadRequest("`segments` must be a list of objects with a `text` and a boolean `special`", param="segments")
    # An output in chunks may come in any: here, character by character.
    finely = isinstance(output, list)
    return [
        (text, part["special"])
        for part in segments
        for text in (part["text"] if finely and not part["special"] else [part["text"]])
    ]


_LOOK = Tool("look", {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}})
_SAID = Turn("assistant", (TextPart("A"),), reasoning="R", calls=(ToolCall("look", {"x": "y"}, "1"),))


def _controls(family: Family, variant: Variant, runs: Sequence[tuple[str, bool]]) -> dict[str, int]:
    """An id for each control token of an output, and of what the family prints in a turn with all it has words for."""
    tooled = variant.capabilities.tools == "native"
    said = _SAID if tooled else replace(_SAID, calls=())
    talk = Conversation((Turn("user", (TextPart("U"),)), said), (_LOOK,) if tooled else ())
    pieces = ask(family, lambda family: family.render(variant, talk, TurnOptions(cue="none")), Prompt).pieces
    known = [*(text for text, special in runs if special), *(piece.token for piece in pieces if isinstance(piece, Special))]
    return {spelling: id for id, spelling in enumerate(dict.fromkeys(known))}


def _events(
    case: Case,
    runs: Sequence[tuple[str, bool]],
    format: OutputFormat,
    stops: Stops,
    options: TurnOptions,
    tail: str,
    tokenizer: Tokenizer | None,
    specials: Mapping[str, int] | None,
) -> tuple[list[Event], bool]:
    """What the output of a case means, and whether a stop text ended it."""
    if "ids" in case:
        ids = case["ids"]
        if tokenizer is None:
            raise BadRequest("`ids` need --tokenizer FILE", param="ids")
        if not isinstance(ids, list) or not all(type(id) is int for id in ids):
            raise BadRequest("`ids` must be a list of token ids", param="ids")
        reader = Reader(tokenizer, format, tail=tail, options=options, stops=stops)
        return [*reader.feed(ids), *reader.finish()], reader.stopped is not None
    parser = OutputParser(format, format.state_after(tail, options), specials)
    filter = StopFilter([StopText(text, stops.patient) for text in stops.texts])
    passed = [
        run for text, special in runs for run in filter.feed(Run(text, specials[text] if special and specials else None))
    ]
    passed += filter.finish()
    events: list[Event] = []
    for run in passed:
        events += parser.skip(len(run.text)) if run.dropped else parser.feed(run.text, run.id)
    return events + parser.finish(), filter.stopped is not None
