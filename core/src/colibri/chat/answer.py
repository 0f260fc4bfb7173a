"""What an answer says, put together from its events as they come."""

from __future__ import annotations

from collections.abc import Iterable

from .events import Event


class Answer:
    """The texts and calls of one answer.

    `calls` are the calls begun, by their index: the name, and the JSON arguments so far. `whole` are the indexes of
    those that ended, in order. `cut` says that one was left incomplete, and `shown` is content with the raw text of such
    calls: they can't be made, and are still what the model said.
    """

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.calls: dict[int, tuple[str, list[str]]] = {}
        self.whole: list[int] = []
        self.cut = False
        self._shown: list[str] = []
        self._reasoning: list[str] = []
        self.read(events)

    def read(self, events: Iterable[Event]) -> None:
        """More of the answer."""
        for event in events:
            if event.kind == "content":
                self._shown.append(event.text)
            elif event.kind == "reasoning":
                self._reasoning.append(event.text)
            elif event.kind == "tool_start":
                self.calls[event.call] = event.text, []
            elif event.kind == "tool_args":
                self.calls[event.call][1].append(event.text)
            elif event.kind == "tool_end":
                self.whole.append(event.call)
            elif event.kind == "tool_cut":
                self.cut = True
                self._shown.append(event.text)

    @property
    def shown(self) -> str:
        return "".join(self._shown)

    @property
    def reasoning(self) -> str:
        return "".join(self._reasoning)

    def made(self) -> list[tuple[str, str]]:
        """The whole calls: name and arguments in JSON."""
        return [(name, "".join(arguments)) for name, arguments in (self.calls[call] for call in self.whole)]
