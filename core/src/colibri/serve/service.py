"""The served model: its files, its engine, its waiting line."""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..chat.asking import ask
from ..chat.conversation import TurnOptions
from ..chat.tokenizer import Tokenizer
from ..compute.checkpoint import Checkpoint, open_checkpoint
from ..compute.container import METADATA
from ..engine.client import LocalEngine
from ..engine.figures import Figures
from ..engine.protocol import Engine, Status, unavailable
from ..errors import EngineError, SettingError
from ..family import Sampling, TokenizerSpec, Variant
from ..settings import Settings
from .generation import Desk, ModelGeneration
from .hardware import hardware
from .preparation import Model, prepare
from .request import GenerationRequest
from .scheduler import Scheduler

if TYPE_CHECKING:
    from ..plugins import Plugins

OnProgress = Callable[[str, float], None]


class ModelService:
    """A Service: one model behind one engine."""

    def __init__(
        self,
        model: Model,
        engine: Engine,
        model_id: str,
        *,
        plugins: Plugins | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        self.model_id = model_id
        self.created = int(time.time())
        self.variant: Variant = model.variant
        self._model = model
        self._engine = engine
        self._on_progress = on_progress
        settings = model.settings
        self._scheduler = Scheduler(settings.kv_slots, settings.max_queue, settings.queue_timeout)
        on_end = (lambda record: None) if plugins is None else plugins.request_finished
        self._desk = Desk(model_id, engine, self._scheduler, itertools.count(1).__next__, on_end)
        self._settled = asyncio.Event()
        engine.watch(self._follow)
        self._follow(engine.status)

    @classmethod
    async def open(
        cls, settings: Settings, plugins: Plugins, on_progress: OnProgress | None = None, *, wait: bool = True
    ) -> ModelService:
        """Serve the model that `settings` names; with `wait`, only once it is loaded.

        `on_progress(stage, fraction)` hears how loading goes. Without `wait`, requests are refused as Unavailable until
        the model is loaded (`loaded`). Raises SettingError, CheckpointError, PluginError or EngineError.
        """
        if settings.model is None:
            raise SettingError("no model given: use --model PATH")
        checkpoint = open_checkpoint(settings.model)
        family, variant = plugins.family_for(checkpoint)
        engine = LocalEngine(settings)
        await engine.start()  # it loads while the tokenizer is read here
        try:
            spec = ask(family, lambda family: family.tokenizer(checkpoint), TokenizerSpec)
            model = Model(family, variant, Tokenizer.load(spec), settings, spec.file)
            model.stop_ids(TurnOptions())
            name = settings.model_id or name_of(checkpoint)
            service = cls(model, engine, name, plugins=plugins, on_progress=on_progress)
            if wait:
                await service.loaded()
        except BaseException:
            await engine.close()
            raise
        return service

    async def loaded(self) -> None:
        """Wait until the model can answer. Raises EngineError or CheckpointError, saying why, if it never will."""
        await self._settled.wait()
        status = self._engine.status
        if status.state in ("failed", "closed"):
            raise EngineError(status.detail or "the engine is closed", code="load_failed")
        if self._engine.ready is not None:
            model = self._model
            model.tokenizer.check_fits(self._engine.ready.vocab, model.stop_ids(TurnOptions()))

    async def close(self) -> None:
        """Refuse and fail everything, and end the engine. Idempotent."""
        self._scheduler.close()
        await self._engine.close()

    @property
    def max_tokens(self) -> int:
        return self._model.settings.max_tokens

    @property
    def slots(self) -> int:
        return self._model.settings.kv_slots

    def sampling(self, options: TurnOptions) -> Sampling:
        return self._model.sampling(options)

    def generate(self, request: GenerationRequest) -> ModelGeneration:
        recall = self._model.recall if request.conversation is not None else None
        return ModelGeneration(prepare(self._model, request), self._model, self._desk, recall)

    def health(self) -> tuple[bool, dict[str, object]]:
        status, ready = self._engine.status, self._engine.ready
        words = {"ready": "ok", "closed": "stopping"}
        engine: dict[str, object] = {"state": status.state, "restarts": status.restarts}
        if status.detail:
            engine["detail"] = status.detail
        if status.state == "loading":
            engine["progress"] = round(status.fraction, 3)
        if ready is not None:
            engine |= {"runtime": ready.runtime, "context": ready.context}
        if self._engine.drafts:
            engine["drafts"] = {
                source: {"drafted": drafted, "accepted": right} for source, (drafted, right) in self._engine.drafts.items()
            }
        return status.state == "ready", {
            "status": words.get(status.state, status.state),
            "model": self.model_id,
            "variant": self.variant.name,
            "kv_slots": self.slots,
            "scheduler": self._scheduler.snapshot(),
            "engine": engine,
            "tiers": _tiers(self._engine.figures),
            "hwinfo": hardware(),
        }

    def figures(self) -> Figures:
        return self._engine.figures

    def _follow(self, status: Status) -> None:
        """The line is open while the engine is ready."""
        if status.state == "ready":
            self._scheduler.resume()
        elif status.state in ("loading", "restarting"):
            self._scheduler.pause()
            if status.state == "loading" and status.detail and self._on_progress is not None:
                self._on_progress(status.detail, status.fraction)
        else:
            self._scheduler.close(unavailable(status))
        if status.state in ("ready", "failed", "closed"):
            self._settled.set()


def name_of(checkpoint: Checkpoint) -> str:
    """What clients call a model that its operator gave no name: the name its file gives, else the file's or folder's."""
    name = checkpoint.metadata.get("general.name")
    path = checkpoint.path.resolve()
    if path.name == METADATA:
        path = path.parent  # a converted model
    if not isinstance(name, str) or not name.strip():
        name = path.stem if path.is_file() else path.name
    tidy = re.sub(r"[^a-z0-9._-]+", "-", name.strip().lower()).strip("-.")
    return tidy or "model"


def _tiers(figures: Figures) -> dict[str, float]:
    """Experts and their gigabytes by where they are."""
    tiers = figures.tiers
    ram, disk, ram_bytes = (0, 0, 0) if tiers is None else (tiers.ram, tiers.disk, tiers.ram_bytes)
    return {"vram": 0, "ram": ram, "disk": disk, "vram_gb": 0.0, "ram_gb": round(ram_bytes / 1e9, 3)}
