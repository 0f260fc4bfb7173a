"""The engine's frames leave in order, and a gateway that does not read costs no more memory than its requests' tokens."""

from __future__ import annotations

import threading

from colibri.engine.frames import Accept, Done, FromEngine, Tokens
from colibri.engine.outbox import Outbox
from colibri.engine.wire import gateway_side


class Gate:
    """A send that blocks until it is opened."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.blocked = threading.Event()
        self.sent: list[bytes] = []

    def send(self, data: bytes) -> None:
        self.blocked.set()
        assert self.open.wait(30)
        self.sent.append(data)

    def frames(self) -> list[object]:
        return list(gateway_side().feed(b"".join(self.sent)))


def test_frames_keep_their_order() -> None:
    gate = Gate()
    gate.open.set()
    outbox = Outbox(gate.send)
    frames: list[FromEngine] = [
        Accept(1, 0, 3, 0, 5),
        Tokens(1, [1]),
        Accept(2, 1, 3, 0, 5),
        Done(1, "stop"),
        Tokens(2, [7]),
    ]
    for frame in frames:
        outbox.put(frame)
    outbox.close(30)
    assert gate.frames() == frames


def test_tokens_that_wait_become_one_frame() -> None:
    gate = Gate()
    outbox = Outbox(gate.send)
    outbox.put(Accept(1, 0, 3, 0, 5))
    assert gate.blocked.wait(30)
    given = Tokens(1, [100])
    many = [Tokens(id, [n]) for n in range(1000) for id in (1, 2)]
    frames: list[FromEngine] = [given, *many, Done(1, "length"), Tokens(2, [5])]
    for frame in frames:
        outbox.put(frame)
    gate.open.set()
    outbox.close(30)
    assert gate.frames() == [
        Accept(1, 0, 3, 0, 5),
        Tokens(1, [100, *range(1000)]),
        Tokens(2, [*range(1000), 5]),
        Done(1, "length"),
    ]
    assert given.ids == [100]  # frames are values: nobody's is changed


def test_a_gateway_that_is_gone() -> None:
    gone = threading.Event()

    def send(data: bytes) -> None:
        gone.set()
        raise BrokenPipeError

    outbox = Outbox(send)
    outbox.put(Tokens(1, [1]))
    assert gone.wait(30)
    for n in range(100):
        outbox.put(Done(n, "stop"))
    outbox.close(30)
    assert not outbox._frames
