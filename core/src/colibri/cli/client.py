"""A small client of the chat completions API, for the terminal commands."""

from __future__ import annotations

import http.client
import json
import urllib.parse
from collections.abc import Iterator
from typing import Any, Literal

from msgspec import Struct

from ..errors import ColibriError, SettingError

Message = dict[str, Any]


class Delta(Struct, frozen=True):
    """A piece of an answer: its text and whether it is the answer itself or the reasoning before it."""

    kind: Literal["content", "reasoning"]
    text: str


class Client:
    """Talks to one server. `url` is its address, with or without /v1; every failure is a ColibriError."""

    def __init__(self, url: str, key: str | None = None) -> None:
        try:
            parts = urllib.parse.urlsplit(url if "//" in url else f"//{url}", scheme="http")
            port = parts.port
        except ValueError:
            raise SettingError(f"flag --url: {url!r} has no valid host or port") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SettingError(f"flag --url: expected an address such as http://127.0.0.1:8000, got {url!r}")
        self._https = parts.scheme == "https"
        self._host, self._port = parts.hostname, port
        self._base = parts.path.rstrip("/").removesuffix("/v1")
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self.url = f"{parts.scheme}://{parts.netloc}{self._base}"

    def models(self) -> list[str]:
        """The ids of the models served, at least one."""
        with self._answer("GET", "/v1/models") as answer:
            try:
                models = [str(model["id"]) for model in json.load(answer)["data"]]
            except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
                raise ColibriError(f"{self.url} is no server of this kind: its /v1/models can't be read") from None
        if not models:
            raise ColibriError(f"{self.url} serves no model")
        return models

    def chat(self, model: str, messages: list[Message], **fields: Any) -> Iterator[Delta]:
        """Stream an answer. Closing the iterator hangs up, which stops the server's work on it."""
        body = {"model": model, "messages": messages, "stream": True} | fields
        with self._answer("POST", "/v1/chat/completions", body) as answer:
            for event in _events(answer):
                if "error" in event:
                    raise ColibriError(_message(event))
                for choice in event.get("choices", ()):
                    delta = choice.get("delta", {})
                    if delta.get("reasoning_content"):
                        yield Delta("reasoning", delta["reasoning_content"])
                    if delta.get("content"):
                        yield Delta("content", delta["content"])

    def _answer(self, method: str, path: str, body: object = None) -> _Answer:
        sent = None if body is None else _encoded(body)
        make = http.client.HTTPSConnection if self._https else http.client.HTTPConnection
        connection = make(self._host, self._port, timeout=None)
        try:
            connection.request(method, self._base + path, sent, self._headers)
            answer = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise ColibriError(f"no answer from {self.url}: {reason}; is the server running there?") from None
        except BaseException:
            connection.close()
            raise
        if answer.status != 200:
            text = answer.read()
            connection.close()
            raise ColibriError(_refusal(answer.status, text))
        return _Answer(connection, answer)


class _Answer:
    """A response that hangs up when left, read to its end or not."""

    def __init__(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> None:
        self._connection, self._response = connection, response

    def __enter__(self) -> http.client.HTTPResponse:
        return self._response

    def __exit__(self, *exc: object) -> None:
        self._response.close()
        self._connection.close()


def _events(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """The JSON objects of an SSE stream, up to [DONE]. Raises ColibriError if it breaks off before."""
    try:
        for raw in response:
            line = raw.decode().rstrip("\r\n")
            if line == "data: [DONE]":
                return
            if line.startswith("data: "):
                yield json.loads(line[6:])
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ColibriError(f"the answer broke off: {error or type(error).__name__}") from None
    raise ColibriError("the answer broke off: the server closed the connection")


def _encoded(body: object) -> bytes:
    """JSON. Raises ColibriError for text that stands for bytes which were not UTF-8 (arguments, standard input)."""
    try:
        return json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        around = error.object[max(error.start - 10, 0) : error.end + 10]
        raise ColibriError(f"the text to send is not UTF-8: {around!r}") from None


def _refusal(status: int, body: bytes) -> str:
    try:
        return _message(json.loads(body))
    except (ValueError, KeyError, TypeError):
        return f"the server answered {status} {http.client.responses.get(status, '')}".rstrip()


def _message(body: dict[str, Any]) -> str:
    message = body["error"]["message"]
    return str(message)
