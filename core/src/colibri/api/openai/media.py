"""Images and sounds in messages: their bytes, whatever the model then makes of them."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from ...chat.conversation import MediaPart
from ...errors import BadRequest, Refusal
from .fields import wrong


def decode_image(part: dict[str, Any], param: str) -> MediaPart:
    """An `image_url` or `input_image` part. An image behind an address of the network is never fetched."""
    target = part.get("image_url")
    url = target.get("url") if isinstance(target, dict) else target
    if not isinstance(url, str):
        raise wrong(f"{param}.image_url", "a data: address, or an object with its `url`", target)
    head, comma, data = url.partition(",")
    if not head.startswith("data:") or not comma:
        # Nothing is read from elsewhere: what is not in the request has no bytes.
        return MediaPart("image")
    form = head.removeprefix("data:").partition(";")[0].partition("/")[2]
    if not head.endswith(";base64"):
        raise BadRequest(f"`{param}.image_url` must hold base64 data.", param=f"{param}.image_url")
    return MediaPart("image", _bytes(data, f"{param}.image_url"), form)


def decode_audio(part: dict[str, Any], param: str) -> MediaPart:
    """An `input_audio` part: base64 `data` in the `format` wav."""
    audio = part.get("input_audio")
    if not isinstance(audio, dict):
        raise wrong(f"{param}.input_audio", "an object with `data` and `format`", audio)
    form, data = audio.get("format"), audio.get("data")
    if not isinstance(form, str):
        raise wrong(f"{param}.input_audio.format", "a string", form)
    if form != "wav":
        raise Refusal(
            f"`{param}.input_audio.format` is `{form[:60]}`; only wav can be read.",
            param=f"{param}.input_audio.format",
            code="unsupported_content_type",
        )
    if not isinstance(data, str):
        raise wrong(f"{param}.input_audio.data", "a base64 string", data)
    return MediaPart("audio", _bytes(data, f"{param}.input_audio.data"), form)


def _bytes(data: str, param: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise BadRequest(f"`{param}` is not valid base64.", param=param) from None
