"""One answer, from token ids to events: detokenise, look for stop texts, read the output format."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from ..family import Stops
from .conversation import TurnOptions
from .detokenizer import Detokenizer, Run
from .events import Event
from .output import OutputFormat, OutputParser, merged
from .schemas import ToolSchemas
from .stops import StopFilter, StopText
from .tokenizer import Tokenizer


class Reader:
    """Reads one answer.

    `tail` is the prompt the answer continues, or its last characters; `stops` are the family's and `stop` the client's
    stop texts, of which `patient` ones are dropped at the beginning. With `schemas`, calls must be written exactly right,
    to a declared tool with valid arguments: else ModelOutputError.

    `stopped` is the stop text that ended the answer, `reasoning_tokens` counts the tokens that carry reasoning.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        format: OutputFormat | None = None,
        *,
        tail: str = "",
        options: TurnOptions | None = None,
        stops: Stops | None = None,
        stop: Sequence[str] = (),
        patient: bool = False,
        schemas: ToolSchemas | None = None,
    ) -> None:
        format = format or OutputFormat()
        options, stops = options or TurnOptions(), stops or Stops()
        self.reasoning_tokens = 0
        self._texts = [StopText(text, patient) for text in stop] + [StopText(text, stops.patient) for text in stops.texts]
        self._detokenizer = Detokenizer(tokenizer)
        self._filter = StopFilter(self._texts)
        self._parser = OutputParser(
            format,
            format.state_after(tail, options),
            tokenizer.specials,
            hidden=tokenizer.hidden,
            repair=schemas is None,
        )
        self._schemas = schemas
        self._names: dict[int, str] = {}
        self._arguments: list[str] = []
        self._read = 0  # raw characters of all tokens so far
        self._tokens: deque[tuple[int, int]] = deque()  # raw spans of the tokens whose events are still to come
        self._ended = False

    @property
    def stopped(self) -> str | None:
        """The stop text that ended the answer, or None."""
        index = self._filter.stopped
        return None if index is None else self._texts[index].text

    @property
    def calls(self) -> int:
        """How many tool calls have begun."""
        return self._parser.calls

    def feed(self, ids: Iterable[int]) -> list[Event]:
        """Read more tokens. Once `stopped` is set, all that follows is ignored."""
        if self._ended:
            return []
        passed: list[Run] = []
        for run in self._detokenizer.feed(ids):
            end = self._read + len(run.text)
            self._tokens.append((self._read, end))
            self._read = end
            passed += self._filter.feed(run)
            if self._filter.stopped is not None:
                break  # tokens behind the one that completes the stop text are no part of the answer, however they arrive
        return self._pass(passed)

    def finish(self) -> list[Event]:
        """The answer has ended: the events held back."""
        if self._ended:
            return []
        rest = self._detokenizer.finish()
        events = self._pass(self._filter.feed(Run(rest)) if rest else [])
        if not self._ended:
            events += self._pass(self._filter.finish())
        if not self._ended:
            events += self._end()
        return merged(events)

    def _pass(self, runs: Sequence[Run]) -> list[Event]:
        events: list[Event] = []
        for run in runs:
            if run.dropped:
                events += self._parser.skip(len(run.text))
            elif run.text:
                events += self._parser.feed(run.text, run.id)
        events = self._check(events)
        if self._filter.stopped is not None:
            events += self._end()
        return merged(events)

    def _end(self) -> list[Event]:
        self._ended = True
        events = self._check(self._parser.finish())
        return events + self._check(self._parser.skip(len(self._filter.tail)))

    def _check(self, events: list[Event]) -> list[Event]:
        """Count reasoning, and hold calls to their schemas where that was asked for."""
        for event in events:
            self._count(event)
            if self._schemas is None:
                continue
            if event.kind == "tool_start":
                self._names[event.call] = event.text
                self._arguments.clear()
            elif event.kind == "tool_args":
                self._arguments.append(event.text)
            elif event.kind == "tool_end":
                self._schemas.check(self._names[event.call], "".join(self._arguments))
            elif event.kind == "tool_cut":
                self._schemas.refuse_cut()
        return events

    def _count(self, event: Event) -> None:
        start, end = event.span
        while self._tokens and (self._tokens[0][0] < end):
            first, last = self._tokens[0]
            reasons = event.kind == "reasoning" and (last > start or first == last >= start)
            if last > end and not reasons:
                break
            self._tokens.popleft()
            self.reasoning_tokens += reasons
