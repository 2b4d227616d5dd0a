"""The demo in miniature, and runs of the real Snakefile on it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import yaml

import warm

ROOT = Path(__file__).parents[1]
COLD = sys.executable, "-m", "snakemake"

MINIATURE = yaml.safe_load(
    """
    run: mini
    models:
      tiny: {source: "builtin:reasoner", layers: 6, heads: 4, kv_heads: 4, billions: 0.001,
             dtype: float32, device: cpu}
    questions:
      test: {benchmark: generated_math, templates: shared, sampling: first, split: test, n: 15}
      train: {benchmark: generated_math, templates: shared, sampling: first, split: train, n: 20}
    decodings:
      greedy: {max_new_tokens: 100}
      authors: {prompt: authors, max_new_tokens: 100}
      T0.6: {temperature: 0.6, top_k: 40, top_p: 0.95, samples: 3, max_new_tokens: 100}
    embedders: {tiny: {model: tiny}}
    sweeps:
      math: {model: tiny, questions: test, layers: [1], heads: [0, 3], placebos: both}
    selectors:
      math: {model: tiny, train: train, test: test, embedder: tiny, layers: [1], heads: [0, 3],
             geometry: [ball, literal], sampling: [T0.6], dimension: [3], diversity: [0.0, 0.1],
             epochs: 4, seeds: [0], shortlist: [1, 2], max_n: 2, redraws: 2,
             redrawn_setting: fixed, bootstrap: 50}
    comparisons: {math: {model: tiny, questions: test}}
    """
)
REASONER = MINIATURE["models"]["tiny"]
"""The model that ships: trained, so that nearly all of its margins are sound."""


def one_thread():
    """Return the environment of this process, with which a command computes on one thread."""
    return {**os.environ, "OMP_NUM_THREADS": "1"}


class Snakemake:
    """Runs the real Snakefile in a folder; a run that takes longer than its patience, in seconds,
    is killed.

    Snakemake and its jobs have their imports done, see `warm`, unless a run is cold, or is started
    without waiting: it may be killed, and its jobs with it.
    """

    def __init__(self, folder, patience=1800.0, snakefile="Snakefile", *, cold=False):
        self._folder, self._patience, self._snakefile = folder, patience, ROOT / snakefile
        self._warm = not cold

    def __call__(self, values, *arguments, check=True):
        environment = warm.environment() if self._warm else one_thread()
        done = subprocess.run(
            self._command(warm.SNAKEMAKE if self._warm else COLD, values, arguments),
            capture_output=True,
            text=True,
            env=environment,
            timeout=self._patience,
            check=False,
        )
        if check and (done.returncode or "Exception in thread" in done.stderr):
            raise AssertionError(f"snakemake failed:\n{done.stdout}\n{done.stderr}")
        return done

    def start(self, values, *arguments, log=Path(os.devnull), before=()):
        """Start a run, in a process group of its own, that an interrupt can reach."""
        with log.open("ab") as stream:
            command = self._command(COLD, values, arguments)
            return subprocess.Popen(
                ["env", "--default-signal=INT", *before, *command],
                env=one_thread(),
                start_new_session=True,
                stdout=stream,
                stderr=stream,
            )

    def _command(self, program, values, arguments):
        command = [*program, "--snakefile", str(self._snakefile), "--directory", str(self._folder)]
        if isinstance(values, dict):
            file = self._folder / f"{values.get('run', 'config')}.yaml"
            file.write_text(yaml.safe_dump(values), encoding="utf-8")
            values = file
        if values is not None:
            command += ["--configfile", str(values)]
        if "--workflow-profile" not in arguments:  # tests read what Snakemake itself says
            command += ["--workflow-profile", "none"]
        return [*command, *(arguments or ("--cores", "2"))]


def planned(done):
    """Return the number of jobs of each rule that a dry run announced."""
    text = done if isinstance(done, str) else done.stdout + done.stderr
    table = re.search(r"^job +count\n-.*\n((?:\S+ +\d+\n)+)", text, re.MULTILINE)
    rows = table[1].splitlines() if table else []
    return {rule: int(count) for rule, count in map(str.split, rows)}


def planned_again(folder, values, rules=""):
    """Return whether the next run would make a file that a finished run has lost, by file.

    It fails if the run is not finished. One file of each kind is tried alone, of the rules that are
    named or of all; see `removals`.
    """
    found = folder / "removals.json"
    command = Snakemake(folder)._command(
        [*warm.COMMAND, "removals", found, rules], values, ["--dry-run"]
    )
    environment = warm.environment()
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return {file: planned for _, file, planned in json.loads(found.read_text("utf-8"))}


def left_over(folder):
    """Return what no finished run may leave behind, by name."""
    files = sorted((folder / "results").rglob("*"))
    unfinished = {".tmp", ".part", ".lock", ".sock"}
    return [
        str(file)
        for file in files
        if file.suffix in unfinished or (".journal" in file.parts and not file.is_dir())
    ]
