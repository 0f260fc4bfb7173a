"""What an engine can't take: one check, made early by the gateway and again, trusting nobody, by the engine."""

from __future__ import annotations

import math

from ..compute.plan import Codes
from ..family import Sampling
from .frames import Error, Submit, mark_of


def refusal(submit: Submit, *, context: int, slots: int, vocab: int, codes: Codes | None = None) -> Error | None:
    """Why `submit` can't run on an engine of these sizes (tokens, slots, token ids) that reads these codes, or None if it
    can."""
    count = len(submit.ids)
    if count == 0:
        return _bad(submit, "empty_prompt", "messages", "The prompt has no tokens. Send at least one non-empty message.")
    if count >= context:
        return _bad(
            submit,
            "context_length_exceeded",
            "messages",
            f"This model's maximum context length is {context} tokens, however your messages resulted in {count} tokens. "
            "Please shorten the conversation, or restart the server with a larger --ctx.",
        )
    if max(submit.ids) >= vocab or (min(submit.ids) < 0 and not submit.media):
        wrong = next(token for token in submit.ids if not 0 <= token < vocab)
        return _bad(submit, "invalid_token", "messages", f"Token id {wrong} is not in the vocabulary of {vocab} tokens.")
    if submit.media and (codes is None or not all(map(codes.fit, submit.media))):
        return _bad(submit, "invalid_media", "messages", "This model does not read sounds or images encoded like this.")
    if submit.media and [token for token in submit.ids if token < 0] != [mark_of(data) for data in submit.media]:
        return _bad(submit, "invalid_media", "messages", "The prompt's token ids do not fit its sounds and images.")
    if submit.slot is not None and not 0 <= submit.slot < slots:
        reason = f"cache_slot {submit.slot} does not exist: the server has slots 0 to {slots - 1} (see --kv-slots)."
        return _bad(submit, "invalid_value", "cache_slot", reason)
    if submit.max_tokens < 1:
        return _bad(submit, "invalid_value", "max_tokens", f"max_tokens must be at least 1, not {submit.max_tokens}.")
    return _sampling_refusal(submit, submit.sampling)


def _sampling_refusal(submit: Submit, sampling: Sampling) -> Error | None:
    ranges = (
        ("temperature", sampling.temperature >= 0 and math.isfinite(sampling.temperature), "a finite number from 0"),
        ("top_p", 0 < sampling.top_p <= 1, "above 0 and at most 1"),
        ("top_k", sampling.top_k >= 0, "0 or more"),
        ("min_p", 0 <= sampling.min_p <= 1, "from 0 to 1"),
    )
    for name, good, range_ in ranges:
        if not good:
            return _bad(submit, "invalid_value", name, f"{name} must be {range_}, not {getattr(sampling, name)}.")
    return None


def _bad(submit: Submit, code: str, param: str, message: str) -> Error:
    return Error(submit.id, code, message, 400, param)
