"""Every error a user can meet, each knowing its wire form.

One base class; a surface asks an error for its OpenAI or Anthropic envelope and never builds one itself.
Messages are written for the person who reads them: they name the field, file or flag and say what to do.
"""

from __future__ import annotations

from typing import Any

#: HTTP status -> Anthropic `error.type` (docs: https://docs.anthropic.com/en/api/errors).
_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


class ColibriError(Exception):
    """Base of all errors that may reach a user.

    `status` is the HTTP status, `type` the OpenAI `error.type`, `code` a stable machine-readable word,
    `param` the request field at fault, `headers` extra response headers.
    """

    status = 500
    type = "server_error"
    code: str | None = None
    param: str | None = None

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        status: int | None = None,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.headers = headers
        if code is not None:
            self.code = code
        if param is not None:
            self.param = param
        if status is not None:
            self.status = status

    def openai(self) -> dict[str, Any]:
        """The OpenAI error envelope as a JSON-ready dict."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}

    def anthropic(self, request_id: str | None = None) -> dict[str, Any]:
        """The Anthropic error envelope as a JSON-ready dict."""
        kind = _ANTHROPIC_TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "api_error")
        return {"type": "error", "error": {"type": kind, "message": self.message}, "request_id": request_id}


class BadRequest(ColibriError):
    """The request is malformed; `param` names the field."""

    status = 400
    type = "invalid_request_error"
    code = "invalid_value"


class Refusal(BadRequest):
    """A well-formed request asks for something this model or server does not do."""

    code = "unsupported_parameter"


class Unauthorized(ColibriError):
    """The API key is missing or wrong."""

    status = 401
    type = "authentication_error"
    code = "invalid_api_key"


class Forbidden(ColibriError):
    """The Host or Origin of the request is not allowed."""

    status = 403
    type = "invalid_request_error"
    code = "forbidden"


class NotFound(ColibriError):
    """No such path or model."""

    status = 404
    type = "invalid_request_error"
    code = "not_found"


class TooLarge(ColibriError):
    """The request is larger than a limit; the message gives the limit."""

    status = 413
    type = "invalid_request_error"
    code = "request_too_large"


class Overloaded(ColibriError):
    """The queue is full or the wait was too long; the client may try again."""

    status = 429
    type = "rate_limit_error"
    code = "queue_full"

    def __init__(self, message: str, **kw: Any) -> None:
        kw.setdefault("headers", (("Retry-After", "1"),))
        super().__init__(message, **kw)


class ModelOutputError(ColibriError):
    """The model wrote something the request's contract does not allow."""

    status = 502
    code = "invalid_model_output"


class EngineError(ColibriError):
    """The engine failed while it worked on a request."""

    status = 500
    code = "engine_error"


class Unavailable(ColibriError):
    """The engine is loading, restarting or stopped."""

    status = 503
    code = "engine_unavailable"


class CheckpointError(ColibriError):
    """A model file is missing, broken or of an unknown kind. One line: file, tensor where known, reason."""

    code = "bad_checkpoint"

    def __init__(self, reason: str, *, file: object = None, tensor: str | None = None) -> None:
        where = [str(file)] if file is not None else []
        if tensor is not None:
            where.append(f"tensor {tensor!r}")
        super().__init__(": ".join([*where, reason]))
        self.file, self.tensor, self.reason = file, tensor, reason


class SettingError(ColibriError):
    """A flag, variable or colibri.toml key has a bad value or an unknown name."""

    code = "bad_setting"


class PluginError(ColibriError):
    """A plugin cannot be used; the message names it and the reason."""

    code = "bad_plugin"
