from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from colibri.chat.detokenizer import Detokenizer, Run

CALL = 300


class Bytes:
    """A vocabulary of single bytes, and one control token."""

    def token_bytes(self, id: int) -> bytes:
        return b"<call>" if id == CALL else bytes([id])

    def is_control(self, id: int) -> bool:
        return id == CALL


@given(st.binary(max_size=30))
def test_any_bytes_decode_as_they_do_at_once(data: bytes) -> None:
    detokenizer = Detokenizer(Bytes())
    text = "".join(run.text for id in data for run in detokenizer.feed([id])) + detokenizer.finish()
    assert text == data.decode("utf-8", "replace")


def test_half_a_character_waits_for_the_other() -> None:
    detokenizer = Detokenizer(Bytes())
    assert [run.text for run in detokenizer.feed("🌧".encode())] == ["", "", "", "🌧"]
    assert [run.text for run in detokenizer.feed([0xE2, 0x82])] == ["", ""]
    assert detokenizer.finish() == "\ufffd"


def test_a_control_token_stands_alone_and_ends_a_broken_character() -> None:
    assert Detokenizer(Bytes()).feed([0x61, 0xE2, CALL, 0x62]) == [
        Run("a"),
        Run(""),
        Run("\ufffd"),
        Run("<call>", CALL),
        Run("b"),
    ]
