"""What a job asks an engine for, and which engine. It imports next to nothing, as `client`."""

import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from headsweep.answers import engine_sockets
from headsweep.files import paths
from headsweep.files.paths import BatchKeys

LINE_LIMIT = 1 << 20  # longest message, in bytes
_OF_AN_ENGINE = ("device", "batch_size", "tensor_parallel", "graphs")
"""Settings of a model that its key leaves out, and that an engine has for good."""


class JobRequest(NamedTuple):
    """What a job asks an engine for: the message, and what an engine that it starts begins with."""

    config: str  # file of the run's config, where an engine reads what else is planned
    section: dict[str, Any]  # the model's of that config, as JSON holds it
    batch: BatchKeys
    variant: str
    cores: int  # CPU cores that the engine may use
    run: str  # of the job, see `begin_run`

    @property
    def engine(self) -> str:
        """Names the engine: different models, settings or folders never share one."""
        settings = [self.section[name] for name in _OF_AN_ENGINE]
        allocation = os.environ.get("SLURM_JOB_ID")  # it ends with its SLURM job, others do not
        identity = (self.batch.model, settings, self.cores, allocation)
        return f"{engine_sockets.prefix()}{zlib.crc32(repr(identity).encode()):08x}"

    @property
    def log(self) -> Path:
        """What an engine prints that this job starts."""
        engine = self.engine.rpartition("-")[2]
        return Path(paths.ENGINE_LOG.format(run=Path(self.config).parent.name, engine=engine))

    @property
    def last_words(self) -> Path:
        """Where to read what the engine has printed: a job of another run may have started it."""
        if self.log.exists():
            return self.log.absolute()
        return Path(paths.ENGINE_LOG.format(run="*", engine=self.log.stem)).absolute()

    def message(self) -> bytes:
        """Return the line that asks an engine."""
        return json.dumps(self._asdict()).encode() + b"\n"

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> "JobRequest":
        """Return the request that a message holds."""
        return cls(**{**message, "batch": BatchKeys(*message["batch"])})
