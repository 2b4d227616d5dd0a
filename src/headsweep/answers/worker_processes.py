"""The processes of an engine's workers, as the engine sees them."""

import multiprocessing
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from headsweep.answers.schedule import Schedule
from headsweep.config import Model
from headsweep.engine.unit import Unit
from headsweep.errors import EngineError


@dataclass(eq=False)
class WorkerProcess:
    """A process that answers units, one after the other."""

    process: BaseProcess
    connection: Connection
    is_ready: bool = False
    schedule: Schedule | None = None  # what it works on
    tokens: int = 0  # written of answers that have not ended
    gpu: str = ""  # what it waits for, by UUID

    def give(self, unit: Unit, schedule: Schedule) -> None:
        """Have it answer a unit of a schedule.

        Raises:
            EngineError: it has died.
        """
        self.is_ready = False
        self.schedule = schedule
        try:
            self.connection.send(unit)
        except ConnectionError:
            raise self.death() from None

    def death(self) -> EngineError:
        """Return what jobs are told when it has closed its connection."""
        self.process.join()
        return EngineError(
            f"a worker of the engine has died with status {self.process.exitcode}, perhaps for "
            f"lack of memory; lower batch_size or --cores, and run again: what is answered is kept"
        )

    def end(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.join()


def start(section: Model, model: str, cores: int) -> Iterator[WorkerProcess]:
    """Start the workers of a model, by its section and key, and yield each as it is started.

    On a CPU they are forked with the model loaded, one for each core; each on GPUs loads its own.
    vLLM is loaded by its worker, and uses all cores itself.

    Raises:
        HeadsweepError: the model cannot be loaded here, or there are too few GPUs.
    """
    from headsweep.answers.worker import Worker, load, serve
    from headsweep.engine.devices import Device, devices

    @cache
    def worker_on(device: str) -> Worker:
        loaded = load(section, model, device)
        return Worker(loaded, section.batch_size, graphs=section.graphs == "auto")

    places = devices(section.device, section.tensor_parallel)
    if places == [Device("cpu")] and section.backend == "headsweep":
        worker_on("cpu")
        places *= cores
    context = multiprocessing.get_context("fork")
    for device in places:
        ours, theirs = context.Pipe()
        given = (theirs, partial(worker_on, device.name), os.getpid(), device)
        process = context.Process(target=serve, args=given)
        process.start()
        theirs.close()
        yield WorkerProcess(process, ours)
