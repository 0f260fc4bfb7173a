"""Which drafts the settings ask for."""

from __future__ import annotations

from ...compute.runtime import Runtime
from ...settings import Settings
from .choice import Drafts
from .head import DraftHead
from .lookup import PromptLookup
from .source import Source

#: So many slots can draft at full length at once.
_FULL_SLOTS = 4


def draft_rows(settings: Settings) -> int:
    """Rows to leave for drafts in a step. Where many slots want to draft at once, each gets fewer."""
    lengths = (settings.lookup_drafts if settings.lookup else 0, settings.mtp_drafts if settings.mtp is not False else 0)
    return max(lengths) * min(settings.kv_slots, _FULL_SLOTS) if settings.spec else 0


def drafts_for(runtime: Runtime, settings: Settings) -> Drafts | None:
    """The sources of drafts for a runtime; None where there are none."""
    sources: list[Source] = []
    if settings.spec and settings.lookup:
        sources.append(PromptLookup(runtime.slots, settings.lookup_drafts))
    if settings.spec and settings.mtp is not False and runtime.draft is not None:
        sources.append(DraftHead(runtime, runtime.draft, settings.mtp_drafts))
    return Drafts(runtime, sources, gated=settings.spec_gate) if sources else None
