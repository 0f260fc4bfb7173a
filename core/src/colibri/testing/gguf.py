"""What a family that reads GGUF files has to hold, as a test class.

    class TestMyGguf(GgufConformance):
        plugin = colibri_mine
        family = "mine"
        models = {"mine-1": DATA / "mine-1" / "model.gguf"}

Beside the file, which another program wrote, lies what ComputeConformance reads (see compute.py), and where the file has a
draft head what DraftConformance reads. `inferred` names the tensors that a file may lack: the family then takes it for a
model without them. Needs numpy and pytest.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from msgspec.structs import replace

from ..compute.checkpoint import Checkpoint, open_checkpoint
from ..compute.load import declare, declare_draft, load_runtime
from ..errors import CheckpointError
from ..family import Family
from .conformance import registered
from .drafts import drafts_of, hidden_of
from .drive import greedy, logits_of
from .interpreter import InterpretedRuntime

_SIZES: dict[str, Any] = {"context": 256, "slots": 2, "max_rows": 64}

#: What a hostile file may give for a key: of other types, or beyond all bounds.
_WRONG: tuple[Any, ...] = ("text", "", -1, 0, 1 << 40, 1.5, -1e300, float("nan"), True, [], [0], [1 << 40] * 9, ["a"], [[1]])


class GgufConformance:
    """Subclass this in a plugin's tests."""

    plugin: ClassVar[Any]
    family: ClassVar[str]
    models: ClassVar[Mapping[str, Path]]
    inferred: ClassVar[frozenset[str]] = frozenset({"output.weight"})
    close: ClassVar[float] = 2e-3

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Every test for every model."""
        if "model" in metafunc.fixturenames:
            metafunc.parametrize("model", list(self.models), scope="class")

    @pytest.fixture(scope="class")
    @classmethod
    def checkpoint(cls, model: str) -> Checkpoint:
        """The file under test."""
        return open_checkpoint(cls.models[model])

    @pytest.fixture(scope="class")
    @classmethod
    def reference(cls, model: str) -> dict[str, np.ndarray]:
        """What should come of it."""
        found: dict[str, np.ndarray] = {}
        for file in cls.models[model].parent.glob("*.npz"):
            with np.load(file) as stored:
                found.update(stored)
        return found

    def test_the_file_computes_what_the_published_model_does(
        self, checkpoint: Checkpoint, reference: Mapping[str, np.ndarray]
    ) -> None:
        runtime = load_runtime(self._family, checkpoint, **_SIZES)
        ids, tokens = reference["prompt_ids"].tolist(), reference["greedy_ids"].tolist()
        assert np.abs(logits_of(runtime, ids) - reference["logits_full"]).max() < self.close
        assert greedy(runtime, ids, len(tokens), slot=1) == tokens

    def test_the_interpreter_computes_the_same(self, checkpoint: Checkpoint, reference: Mapping[str, np.ndarray]) -> None:
        runtime = InterpretedRuntime(*declare(self._family, checkpoint), **_SIZES)
        found = logits_of(runtime, reference["prompt_ids"].tolist(), chunks=[7, 1, 5])
        assert np.abs(found - reference["logits_full"]).max() < self.close

    def test_its_head_drafts_what_the_published_one_does(
        self, checkpoint: Checkpoint, reference: Mapping[str, np.ndarray]
    ) -> None:
        runtime, ids = load_runtime(self._family, checkpoint, drafts=True, **_SIZES), reference["prompt_ids"].tolist()
        assert (runtime.draft is not None) == any(".nextn." in name for name in checkpoint.tensors)
        if runtime.draft is not None:
            found = drafts_of(runtime.draft, ids[1:], hidden_of(runtime, ids)[:-1])
            assert np.abs(found - reference["draft_logits"]).max() < self.close

    def test_a_file_that_lacks_a_tensor_is_refused(self, checkpoint: Checkpoint) -> None:
        _, needed = declare(self._family, checkpoint)
        names = {name for name in checkpoint.tensors if any(tensor.name.startswith(name) for tensor in needed.values())}
        assert names
        kept = set()
        for name in names:
            tensors = {other: tensor for other, tensor in checkpoint.tensors.items() if other != name}
            if not self._refusal(replace(checkpoint, tensors=tensors)):
                kept.add(name)
        assert kept <= self.inferred

    def test_whatever_the_metadata_say_is_computed_or_refused_in_a_line(self, checkpoint: Checkpoint) -> None:
        own = [key for key in checkpoint.metadata if key.startswith(f"{checkpoint.model_type}.")]
        assert own
        for key in own:
            without = {other: value for other, value in checkpoint.metadata.items() if other != key}
            for metadata in (without, *({**without, key: value} for value in _WRONG)):
                assert "\n" not in self._refusal(replace(checkpoint, metadata=metadata))

    @property
    def _family(self) -> Family:
        return registered(self.plugin, self.family)

    def _refusal(self, checkpoint: Checkpoint) -> str:
        """What is said to a file that can't be computed, "" if it can be."""
        try:
            plan, _ = declare(self._family, checkpoint)
            declare_draft(self._family, checkpoint, plan)
        except CheckpointError as error:
            return str(error)
        return ""
