"""Images and sounds in messages."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from colibri.api.openai.messages import decode_messages
from colibri.chat.conversation import MediaPart
from colibri.errors import BadRequest, ColibriError, Refusal

DATA = base64.b64encode(b"bytes").decode()


def part(given: dict[str, Any]) -> Any:
    (turn,) = decode_messages([{"role": "user", "content": [given]}])
    assert turn.content is not None
    return turn.content[0]


@pytest.mark.parametrize(
    "form", [{"type": "image_url", "image_url": {"url": "URL"}}, {"type": "input_image", "image_url": "URL"}]
)
def test_an_image_comes_with_its_bytes_or_without_any(form: dict[str, Any]) -> None:
    def at(url: str) -> Any:
        target: Any = {"url": url} if isinstance(form["image_url"], dict) else url
        return part({**form, "image_url": target})

    assert at(f"data:image/png;base64,{DATA}") == MediaPart("image", b"bytes", "png")
    assert at("https://example.com/cat.png") == MediaPart("image")
    assert at("/etc/passwd") == MediaPart("image")


def test_a_sound_is_wav() -> None:
    assert part({"type": "input_audio", "input_audio": {"data": DATA, "format": "wav"}}) == MediaPart(
        "audio", b"bytes", "wav"
    )


@pytest.mark.parametrize(
    ("given", "param", "error"),
    [
        ({"type": "image_url"}, "image_url", BadRequest),
        ({"type": "image_url", "image_url": {"url": 7}}, "image_url", BadRequest),
        ({"type": "image_url", "image_url": {"url": "data:image/png,abc"}}, "image_url", BadRequest),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,@@"}}, "image_url", BadRequest),
        ({"type": "input_audio"}, "input_audio", BadRequest),
        ({"type": "input_audio", "input_audio": {"data": DATA}}, "input_audio.format", BadRequest),
        ({"type": "input_audio", "input_audio": {"data": DATA, "format": "mp3"}}, "input_audio.format", Refusal),
        ({"type": "input_audio", "input_audio": {"data": 5, "format": "wav"}}, "input_audio.data", BadRequest),
        ({"type": "input_audio", "input_audio": {"data": "abc", "format": "wav"}}, "input_audio.data", BadRequest),
        ({"type": "video_url", "video_url": {}}, "", Refusal),
    ],
)
def test_what_cannot_be_read_is_named(given: dict[str, Any], param: str, error: type[ColibriError]) -> None:
    with pytest.raises(error) as caught:
        part(given)
    assert str(caught.value.param) == "messages.0.content.0" + (f".{param}" if param else "")
