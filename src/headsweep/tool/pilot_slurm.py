"""`headsweep pilot --slurm`: the pilot in one SLURM allocation."""

import logging
import math
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from headsweep import paths
from headsweep.config import Config, load
from headsweep.config.files import read_values
from headsweep.errors import ConfigError
from headsweep.planning.allocations import PROFILE, UNNAMED
from headsweep.planning.batches import batches
from headsweep.planning.cards import card_of
from headsweep.planning.cost import generation_seconds
from headsweep.planning.footprint import gpus_of, host_megabytes
from headsweep.planning.revisions import resolve
from headsweep.tool.pilot import little_config, piloted_batches

CORES = 8
"""That an allocation has."""
_START_MINUTES, _LEAST_MINUTES = 10, 15
"""Of an allocation: for loading a model and its engine's check, and what is asked at least."""
_LEAST_MEGABYTES = 4000
_TRIAL_MINUTES = 5
"""For software to load a model, and to be timed."""
_ON_A_GPU = 3  # trials there: the engine, its steps captured as graphs, and vLLM

_LOG = logging.getLogger(__name__)


def _minutes(config: Config) -> int:
    """Return the minutes to ask for: of each model's start and trials, and twice its answers'.

    Raises:
        ConfigError: there is nothing to pilot.
    """
    total = 0.0
    for batch in piloted_batches(config).values():
        little = little_config(config, batch)
        device = config.models[batch.model].device
        card = card_of(device, local=False)
        few = batches(little)
        seconds = sum(generation_seconds(little, few_questions, card) for few_questions in few)
        trials = 1 if device == "cpu" else _ON_A_GPU
        total += _START_MINUTES + trials * _TRIAL_MINUTES + 2 * seconds / 60
    return max(_LEAST_MINUTES, math.ceil(total))


def submit(file: Path) -> None:
    """Run the pilot of a config file in one SLURM allocation, wait for it, and print its output.

    The largest model of the config decides the requested resources.

    Raises:
        ConfigError: there is no SLURM here or nothing to pilot, or the job fails.
    """
    config = resolve(load(file))
    minutes = _minutes(config)
    if not shutil.which("sbatch"):
        raise ConfigError("--slurm: there is no sbatch on the path; run it where SLURM is")
    models = [config.models[batch.model] for batch in batches(config)]
    gpus = max(map(gpus_of, models), default=0)
    megabytes = max([_LEAST_MEGABYTES, *map(host_megabytes, models)])
    log = Path(paths.RESULTS, "pilot", "logs", "slurm.log").absolute()
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)  # a former pilot's says nothing of this one
    options = {
        "job-name": "headsweep-pilot",
        "output": log,
        "cpus-per-task": CORES,
        "mem": f"{megabytes}M",
        "time": minutes,
    }
    if gpus:
        options["gpus"] = gpus  # as the profile's executor asks for a run's
    if PROFILE.exists():
        defaults = read_values(PROFILE).get("default-resources") or {}
        for option in ("partition", "account"):
            if (value := defaults.get(f"slurm_{option}")) not in (None, UNNAMED):
                options[option] = value
    command = [sys.executable, "-P", "-m", "headsweep", "pilot", str(file.absolute())]
    words = [f"--{name}={value}" for name, value in options.items()]
    _LOG.info("sbatch %s; its log: %s", " ".join(words), log)
    words = ["sbatch", "--wait", *words, f"--wrap={shlex.join(command)}"]
    done = subprocess.run(words, capture_output=True, errors="replace", check=False)
    output = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    print(output, end="")
    if done.returncode:
        last = " ".join((output or done.stderr).split("\n")[-3:]).strip()
        if not log.exists():
            raise ConfigError(
                f"--slurm: sbatch has failed ({last}), and no job has run; change the profile's "
                f"partition or account ({PROFILE}), or what the config's largest model needs"
            )
        raise ConfigError(f"--slurm: the job has failed ({last}); {log} says more")
