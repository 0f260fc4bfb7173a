"""What the settings say of drafts."""

from __future__ import annotations

import pytest

from colibri.engine.drafts.build import draft_rows, drafts_for
from colibri.settings import Settings
from colibri.testing.runtime import ScriptedRuntime


@pytest.mark.parametrize(
    ("settings", "sources"),
    [
        (Settings(), ["lookup", "mtp"]),
        (Settings(lookup=False), ["mtp"]),
        (Settings(mtp=False), ["lookup"]),
        (Settings(lookup=False, mtp=False), None),
        (Settings(spec=False), None),
    ],
)
def test_sources(settings: Settings, sources: list[str] | None) -> None:
    runtime = ScriptedRuntime()
    runtime.draft = ScriptedRuntime()
    drafts = drafts_for(runtime, settings)
    assert (None if drafts is None else drafts.sources) == sources


def test_a_model_without_a_head_drafts_from_text_alone() -> None:
    drafts = drafts_for(ScriptedRuntime(), Settings(mtp=True))
    assert drafts is not None
    assert drafts.sources == ["lookup"]
    assert drafts_for(ScriptedRuntime(), Settings(lookup=False)) is None


def test_rows_for_drafts() -> None:
    assert draft_rows(Settings(lookup_drafts=7)) == 7
    assert draft_rows(Settings(lookup=False, mtp_drafts=2, kv_slots=3)) == 6
    assert draft_rows(Settings(lookup_drafts=7, kv_slots=16)) == 28
    assert draft_rows(Settings(spec=False)) == draft_rows(Settings(lookup=False, mtp=False)) == 0
