"""The output engine: one table per family says how raw output is to be read, one parser reads it.

An `OutputFormat` is a frozen table, (state, marker) -> (state, actions). `OutputParser` runs it over the output as it
arrives, in any pieces, and turns it into `Event`s. It holds back only what may still become a marker that is legal in
the present state, looks at every character a bounded number of times, and accounts for every character of the raw
output with exactly one event.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Literal, get_args

from msgspec import Struct

from ..errors import PluginError
from .calls import CallReader, CallSyntax, Guess, GuessSyntax, Part
from .conversation import TurnOptions
from .events import Event, Kind
from .markers import TEXT as TEXT
from .markers import Alphabet, Rules, is_stray

#: What text in a state is. `content` and `reasoning` are shown and `drop` is not, but blanks there are kept if they part
#: two texts, one already shown and one that the state's TEXT move goes on to. `field` text goes to the call reader,
#: up to the next marker; in a `body` the call reader says itself where it ends, and no marker is seen before. `guess`
#: text is held back until a marker or the format's guess tells what it is; the state's TEXT move is made if it is text.
StateKind = Literal["content", "reasoning", "drop", "field", "body", "guess"]

_KINDS: tuple[StateKind, ...] = get_args(StateKind)
_CALL_KINDS = ("field", "body")

#: How much a call reader is given at a time, in characters: what it leaves is given to it again.
_BITE = 4096

_MERGED: tuple[Kind, ...] = ("content", "reasoning", "tool_args", "swallowed")


class OutputFormat(Struct, frozen=True):
    """How one variant writes its answers.

    `moves` maps (state, marker) to the next state and the actions on the way. A marker is spelled as the tokenizer
    prints it; parts of it that the tokenizer has as control tokens then match only as those tokens. Where markers
    overlap, the one that begins first wins, then the longest. Actions: `open` begins a call at the marker, and ends one
    that is still open; `close` ends it; `text` shows what a `guess` state held back as content; any other word goes to
    the call reader.

    `starts` gives the start state by how the prompt ends, first match first; `start` holds elsewhere. A continued turn
    starts in `content`. `trim` names states whose text loses its blanks where it meets a marker (not at the ends of
    the output). `kinds` declares states other than `content` and `reasoning`.
    """

    moves: Mapping[tuple[str, str], tuple[str, ...]] = {}
    kinds: Mapping[str, StateKind] = {}
    start: str = "content"
    starts: tuple[tuple[str, str], ...] = ()
    trim: frozenset[str] = frozenset()
    calls: CallSyntax | None = None
    guess: GuessSyntax | None = None

    def __post_init__(self) -> None:
        for (state, marker), (_, *actions) in self.moves.items():
            if marker == TEXT and actions:
                raise PluginError(f"output format: the text move of state {state!r} has actions")
        for state in sorted(self.states):
            kind = self.kind(state)
            if kind not in _KINDS:
                raise PluginError(f"output format: state {state!r} is {kind!r}; the kinds are {', '.join(_KINDS)}")
            if kind in _CALL_KINDS and self.calls is None:
                raise PluginError(f"output format: state {state!r} reads calls, but the format has no call syntax")
            if kind == "guess" and (self.guess is None or (state, TEXT) not in self.moves):
                raise PluginError(f"output format: state {state!r} guesses, but has no guess or no text move")

    @property
    def states(self) -> set[str]:
        """All states that can be reached."""
        moved = {state for (source, _), (target, *_) in self.moves.items() for state in (source, target)}
        return {self.start, *(state for _, state in self.starts), *moved}

    def kind(self, state: str) -> StateKind:
        """What text in `state` is. Raises PluginError for a state nobody declared."""
        if state in self.kinds:
            return self.kinds[state]
        if state == "content":
            return "content"
        if state == "reasoning":
            return "reasoning"
        raise PluginError(f"output format: state {state!r} has no kind")

    def state_after(self, prompt: str, options: TurnOptions) -> str:
        """The state in which the answer to a prompt (or to its last characters) begins."""
        if options.cue == "continue":
            return "content"
        return next((state for tail, state in self.starts if prompt.endswith(tail)), self.start)


class OutputParser:
    """Reads one answer. `specials` are the tokenizer's control tokens by spelling: with them, a marker's control tokens
    are recognised by the ids given to `feed`, and the same characters from ordinary tokens are text. Without them
    markers are recognised by their characters. Control tokens of `hidden` that are no part of a marker are swallowed.

    Without `repair`, calls that are not written exactly right are cut (see `CallSyntax`). `calls` counts the calls begun.
    """

    def __init__(
        self,
        format: OutputFormat,
        state: str | None = None,
        specials: Mapping[str, int] | None = None,
        *,
        hidden: Container[int] = (),
        repair: bool = True,
    ) -> None:
        self.calls = 0
        self._format = format
        self._repair = repair
        self._alphabet = Alphabet(specials, hidden)
        self._rules = self._compile()
        self._buffer, self._pos = "", 0  # characters not yet understood
        self._at = 0  # raw characters that events stand for
        self._owed = 0  # raw characters read since, for which the next event of a call will stand
        self._events: list[tuple[Kind, list[str], int, int, int]] = []
        self._blank: list[str] = []  # blanks that a marker may make disappear
        self._said = False  # content was shown
        self._fresh = False
        self._guess: Guess | None = None
        self._held: list[str] = []
        self._reader: CallReader | None = None
        self._block: list[str] = []  # the raw text of the call being read
        self._started = False
        self._broken = False
        self._enter(state if state is not None else format.start)
        self._fresh = False

    def feed(self, text: str, id: int | None = None) -> list[Event]:
        """Read more output. `id` is given for text that is one control token."""
        self._buffer += self._alphabet.read(text, id)
        self._run(final=False)
        return self._take()

    def skip(self, length: int) -> list[Event]:
        """Account for `length` characters of the raw output that are not to be read, such as a matched stop text. Only
        before the first `feed` or after `finish`."""
        self._put("swallowed", "", length)
        return self._take()

    def finish(self) -> list[Event]:
        """The output has ended: say what the text held back was."""
        self._run(final=False)
        if self._guess is not None:
            self._decide(self._guess)
        if self._kind in _CALL_KINDS:
            self._consume(self._buffer[self._pos :])  # the beginning of a marker is no part of a call
        else:
            self._run(final=True)
        if self._reader is not None:
            self._close(marked=False)
        self._end_blanks()
        self._put("swallowed", "", self._owed)
        self._owed = 0
        return self._take()

    def _compile(self) -> dict[str, Rules]:
        """The rules of every state."""
        moves: dict[str, dict[str, tuple[str, ...]]] = {state: {} for state in ("content", *self._format.states)}
        for (state, marker), move in self._format.moves.items():
            moves[state][self._alphabet.compile(marker)] = move
        return {
            state: Rules(markers, strays=self._alphabet.by_id and self._format.kind(state) != "guess")
            for state, markers in moves.items()
        }

    # The machine.

    def _run(self, final: bool) -> None:
        while self._pos < len(self._buffer) and self._step(final):
            pass
        self._buffer, self._pos = self._buffer[self._pos :], 0

    def _step(self, final: bool) -> bool:
        """Understand some of the buffer; False if it must wait for more."""
        rules = self._rules[self._state]
        if self._kind == "body" and not self._broken:
            limit = min(self._pos + _BITE, len(self._buffer))
            self._read(self._buffer[self._pos : limit])
            if self._pos == limit:
                return limit < len(self._buffer)
            marker, undecided = rules.here(self._buffer, self._pos)
            if undecided and not final:
                return False
            if marker is not None:
                self._move(marker)
            else:
                self._broken = True
            return True
        end, marker = rules.next(self._buffer, self._pos, final)
        text = self._buffer[self._pos : end]
        if text and self._guess is not None:
            self._held.append(text)
            self._pos = end
            if not self._guess.read(text):
                self._release()
                return True
        elif text and rules.text is not None and (lead := len(text) - len(text.lstrip())) < len(text):
            self._text(text[:lead])
            if rules.text[0] in self._format.trim:
                self._drop_blanks()
            self._enter(rules.text[0])
            return True
        elif text:
            self._text(text)
        if marker is not None:
            self._move(marker)
        return marker is not None

    def _text(self, text: str) -> None:
        """Text that holds no marker."""
        if self._kind in _CALL_KINDS:
            if self._broken:
                self._consume(text)
            else:
                self._read(text)
            return
        self._pos += len(text)
        if self._kind == "drop":
            if self._said and self._leads_to_text:
                self._blank.append(text)
            else:
                self._put("swallowed", "", self._raw(text))
        elif self._state not in self._format.trim:
            self._show(text)
        else:
            if self._fresh:
                body = text.lstrip()
                self._put("swallowed", "", len(text) - len(body))
                self._fresh, text = not body, body
            body = text.rstrip()
            if body:
                self._show(body)
            self._blank.append(text[len(body) :])

    def _show(self, text: str) -> None:
        """Show text as what the state says it is, after the blanks that waited for it."""
        text = "".join(self._blank) + text
        self._blank.clear()
        assert self._kind == "content" or self._kind == "reasoning"
        self._put(self._kind, text, self._raw(text))

    def _end_blanks(self) -> None:
        """The blanks that waited for a text or a marker stand before neither."""
        if self._kind == "drop":
            self._drop_blanks()
        elif self._blank:
            self._show("")

    def _drop_blanks(self) -> None:
        self._put("swallowed", "", sum(map(len, self._blank)))
        self._blank.clear()

    def _move(self, marker: str) -> None:
        """Follow a marker that stands at the reading position."""
        if is_stray(marker):
            self._end_blanks()
            self._consume(marker)
            return
        target, *actions = self._rules[self._state].moves[marker]
        self._pos += len(marker)
        held = "".join(self._held)
        blank = "".join(self._blank)
        if "open" not in actions:
            self._put("swallowed", "", len(blank))
        if held and "text" in actions:
            self._put("content", held, self._raw(held))
        elif held and "open" not in actions:
            self._put("swallowed", "", self._raw(held))
        if self._reader is None and "open" not in actions:
            self._put("swallowed", "", self._raw(marker))
        elif "open" not in actions:
            self._note(marker)
        for action in actions:
            if action == "open":
                self._open(blank + held + marker)
            elif action == "close":
                self._close(marked=True)
            elif action != "text" and self._reader is not None and not self._broken:
                for part in self._reader.act(action):
                    self._part(part)
        self._blank.clear()
        self._held.clear()
        self._guess = None
        self._enter(target)

    def _enter(self, state: str) -> None:
        self._state, self._kind = state, self._format.kind(state)
        self._fresh = state in self._format.trim
        text = self._rules[state].text
        self._leads_to_text = text is not None and self._format.kind(text[0]) in ("content", "reasoning")
        if self._kind == "guess":
            assert self._format.guess is not None
            self._guess = self._format.guess.guess()

    def _release(self) -> None:
        """What a guess state held back is text after all: read it again as that."""
        text = self._rules[self._state].text
        assert text is not None
        self._buffer, self._pos = "".join(self._held) + self._buffer[self._pos :], 0
        self._held.clear()
        self._guess = None
        fresh = self._fresh
        self._enter(text[0])
        self._fresh &= fresh

    def _decide(self, guess: Guess) -> None:
        """The output ends while it is still a guess what it is."""
        rest, self._buffer = self._buffer, ""
        self._held.append(rest)
        call = guess.finish() if not rest or guess.read(rest) else None
        if call is None and guess.cut and not self._repair:
            held = "".join(self._held)
            self._put("tool_cut", held, self._raw(held))
            self._held.clear()
            return
        if call is None:
            self._release()
            self._run(final=False)
            return
        self._part(Part("tool_start", call[0]), self._raw("".join(self._held)))
        self._part(Part("tool_args", call[1]))
        self._part(Part("tool_end"))
        self._held.clear()

    # Calls.

    def _open(self, text: str) -> None:
        """Begin a call; `text` is what of it has been read."""
        assert self._format.calls is not None
        if self._reader is not None:
            self._close(marked=False)
        self._reader = self._format.calls.reader(self._repair)
        self._started = self._broken = False
        self._note(text)

    def _read(self, text: str) -> None:
        """Give text to the call reader."""
        assert self._reader is not None
        length = len(text)
        if self._kind == "field":
            text = self._alphabet.spell(text)
        used, parts = self._reader.read(self._state, text)
        at = 0
        for part in parts:
            self._part(part, self._raw(text[at : at + part.length]))
            at += part.length
        self._owed += self._raw(text[at:used])
        self._block.append(text[:used])
        self._pos += used if self._kind == "body" else length

    def _close(self, marked: bool) -> None:
        assert self._reader is not None
        parts: Sequence[Part] = [Part("tool_cut")] if self._broken else self._reader.close(marked)
        for part in parts:
            self._part(part)
        self._reader = None
        self._block.clear()

    def _note(self, text: str) -> None:
        """Raw text of a call that its reader does not see."""
        self._owed += self._raw(text)
        self._block.append(text)

    def _consume(self, text: str) -> None:
        self._pos += len(text)
        if self._reader is not None:
            self._note(text)
        else:
            self._put("swallowed", "", self._raw(text))

    def _part(self, part: Part, raw: int = 0) -> None:
        """Turn a reader's part into an event over the raw characters owed and `raw` more."""
        text, call = part.text, self.calls - 1
        if part.kind == "tool_start":
            call = self.calls
            self.calls += 1
            self._started = True
        elif part.kind == "tool_cut":
            text, call = "".join(self._block), call if self._started else -1
        elif part.kind == "swallowed":
            call = -1
        self._put(part.kind, text, self._owed + raw, call)
        self._owed = 0

    # Events and characters.

    def _put(self, kind: Kind, text: str, raw: int, call: int = -1) -> None:
        if not raw and not text and kind in _MERGED:
            return
        start, self._at = self._at, self._at + raw
        self._said |= bool(text) and kind in ("content", "tool_cut")
        if self._events and kind in _MERGED:
            last, texts, begin, _, same = self._events[-1]
            if last == kind and same == call:
                texts.append(text)
                self._events[-1] = (kind, texts, begin, self._at, call)
                return
        self._events.append((kind, [text], start, self._at, call))

    def _take(self) -> list[Event]:
        events, self._events = self._events, []
        return [
            Event(kind, self._alphabet.spell("".join(texts)), (start, end), call) for kind, texts, start, end, call in events
        ]

    def _raw(self, text: str) -> int:
        """How many characters of the raw output `text` stands for."""
        return len(self._alphabet.spell(text))


def merged(events: Sequence[Event]) -> list[Event]:
    """The same events with neighbours joined as one `feed` of the whole output would have joined them."""
    whole: list[Event] = []
    for event in events:
        last = whole[-1] if whole else None
        if last is not None and event.kind in _MERGED and (event.kind, event.call) == (last.kind, last.call):
            whole[-1] = Event(event.kind, last.text + event.text, (last.span[0], event.span[1]), event.call)
        else:
            whole.append(event)
    return whole
