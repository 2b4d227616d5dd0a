"""The engine and its rivals side by side on one sweep: `python -m benchmarks.sweep`."""

import argparse
import logging
import multiprocessing
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from functools import partial
from math import inf
from pathlib import Path
from statistics import fmean, median
from typing import Any
from unittest.mock import patch

import torch
from transformers.utils.logging import disable_progress_bar

from benchmarks import shapes
from benchmarks.baselines import RIVALS, Key, Outcome, Work, answer, ask, start
from headsweep.arguments import count
from headsweep.benchmarks.generated import generate
from headsweep.benchmarks.prompts import encode_prompt
from headsweep.config import Decoding
from headsweep.engine.requests import NEAR_TIE
from headsweep.errors import ModelError
from headsweep.files.safe_files import write_json
from headsweep.models.load import load_model
from headsweep.variants import BASE

_LOG = logging.getLogger(__name__)

Setting = tuple[int, int]  # processes, and threads of each


class Crew:
    """Processes that hold the same model and divide a sweep among them."""

    def __init__(self, setting: Setting, folder: Path, dtype: str) -> None:
        self.setting = processes, threads = setting
        context = multiprocessing.get_context("spawn")
        # One pool a process, so that each process gets its share and no other's.
        self._pools = [
            ProcessPoolExecutor(1, context, start, (str(folder), dtype, threads))
            for _ in range(processes)
        ]
        # Some libraries size their pools from the environment, when they are imported.
        with patch.dict(os.environ, OMP_NUM_THREADS=str(threads)):
            self.ask(type)  # starts them

    def ask(self, function: Any, *given: list[Any]) -> list[Any]:
        """Call a function with the model in all processes, and with arguments of their own."""
        futures = []
        for number, pool in enumerate(self._pools):
            arguments = [values[number] for values in given]
            futures.append(pool.submit(partial(ask, function, *arguments)))
        return [future.result() for future in futures]

    def measure(self, rival: str, work: Work) -> tuple[float, Outcome]:
        """Return the time until the last process has finished, and all answers.

        Raises:
            ModelError: the rival fails.
        """
        parts = work.split(len(self._pools))
        begin = time.perf_counter()
        outcomes = self.ask(answer, [rival] * len(parts), parts)
        seconds = time.perf_counter() - begin
        whole = Outcome()
        for outcome in outcomes:
            whole.add(outcome)
        return seconds, whole

    def close(self) -> None:
        """End the processes."""
        for pool in self._pools:
            pool.shutdown(cancel_futures=True)


def main(arguments: list[str] | None = None) -> None:
    """Read a command line and measure."""
    form = argparse.ArgumentDefaultsHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--model", default="demo", help="a folder, or 'demo'")
    parser.add_argument(
        "--shape",
        default="demo",
        choices=("demo", "qwen2.5-1.5b"),
        help="demo: the model as it is; qwen2.5-1.5b: random weights of that shape",
    )
    parser.add_argument("--heads", type=count, default=24, help="pruned one at a time")
    parser.add_argument("--questions", type=count, default=200, help="of each pruned model")
    parser.add_argument("--max-new-tokens", type=count, default=128, help="limit of an answer")
    threads = "CPU threads to try: in one process, and as so many processes"
    parser.add_argument("--threads", type=count, nargs="+", default=[1, 2], help=threads)
    rows = "rows to measure"
    parser.add_argument("--rivals", nargs="+", default=[*RIVALS], choices=[*RIVALS], help=rows)
    rounds = "rounds, of which medians are reported"
    parser.add_argument("--repeat", type=count, default=1, help=rounds)
    parser.add_argument("--json", type=Path, help="file for all measurements")
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    run(**vars(parser.parse_args(arguments)))


def run(
    *,
    model: str,
    shape: str,
    heads: int,
    questions: int,
    max_new_tokens: int,
    threads: Sequence[int],
    rivals: Sequence[str],
    repeat: int,
    json: Path | None,
) -> None:
    """Measure a sweep, print the table, and write the JSON file; the arguments are those of `main`.

    Raises:
        ModelError: the model cannot be loaded, or does not fit the shape.
    """
    disable_progress_bar()
    on_gpu = torch.cuda.is_available()
    dtype = "bfloat16" if on_gpu else "float32"
    rows: dict[str, Any] = {rival: {} for rival in rivals}
    outcomes: dict[str, Outcome] = {}
    with tempfile.TemporaryDirectory(prefix="headsweep-bench-") as scratch:
        source = load_model("builtin:reasoner" if model == "demo" else model, device="cpu")
        folder, every = shapes.make(shape, source, Path(scratch) / "model", getattr(torch, dtype))
        drawn = generate("generated_math", "test", questions, seed=0, apart=False)
        decoding = Decoding(max_new_tokens=max_new_tokens)
        tokenizer = source.tokenizer
        texts = [encode_prompt(tokenizer, text, decoding, "math") for text in drawn["question"]]
        prompts = dict(zip(drawn["question_id"], texts, strict=True))
        most = min(heads, len(every))
        pruned = [every[place * len(every) // most] for place in range(most)]  # from all layers
        work = Work(prompts, (BASE, *pruned), max_new_tokens)
        del source
        settings = settings_of(threads, len(prompts))
        for setting in settings[:1] if on_gpu else settings:
            with closing(Crew(setting, folder, dtype)) as crew:
                _measure(crew, rows, outcomes, work, repeat)
    if "published" in outcomes:
        _compare_with_published(rows, outcomes)
    facts = {
        "torch": torch.__version__,
        "shape": shape,
        "questions": len(work.prompts),
        "variants": [str(variant) for variant in work.variants],
        "near_tie": NEAR_TIE[dtype],
        "rows": rows,
    }
    print(report(facts))
    if json:
        write_json(json, facts)


def settings_of(threads: Sequence[int], questions: int) -> list[Setting]:
    """Return what is tried: so many threads of one process, and as many processes of one thread.

    There are no processes without a question: several rivals cannot answer none.
    """
    processes = [number for number in threads if 1 < number <= questions]
    return [(1, number) for number in threads] + [(number, 1) for number in processes]


def _compare_with_published(rows: dict[str, Any], outcomes: Mapping[str, Outcome]) -> None:
    """Add to each measured row how its speed and answers compare with the published method's."""
    published = rows["published"]["tokens_per_second"]
    expected = outcomes["published"].choices
    for rival, outcome in outcomes.items():
        different = {key for key, tokens in outcome.choices.items() if tokens != expected[key]}
        row = rows[rival]
        row["ratio"] = row["tokens_per_second"] / published
        row["differing"] = len(different)
        row["near_ties_differing"] = len(different & outcome.near_ties)


def _measure(
    crew: Crew,
    rows: dict[str, Any],
    outcomes: dict[str, Outcome],
    work: Work,
    repeat: int,
) -> None:
    """Measure all rivals in turn, round after round, after a small part of the work to warm up.

    `rows` and `outcomes` keep each rival's fastest setting, or the cause of its failure.
    """
    few = Work(dict([*work.prompts.items()][: 2 * crew.setting[0]]), work.variants[:2], 8)
    seconds: dict[str, list[float]] = {rival: [] for rival in rows}
    latest: dict[str, Outcome] = {}
    for number in range(repeat):
        for rival in [rival for rival, row in rows.items() if "failure" not in row]:
            try:
                if not number:
                    crew.measure(rival, few)
                taken, latest[rival] = crew.measure(rival, work)
            except ModelError as error:
                rows[rival] = {"failure": str(error)}
                outcomes.pop(rival, None)
                _LOG.warning("%s is not measured: %s", rival, error)
                continue
            seconds[rival].append(taken)
            processes, threads = crew.setting
            _LOG.info("%s, %d × %d threads: %.2f s", rival, processes, threads, taken)
    for rival, row in rows.items():
        if "failure" in row:
            continue
        taken = median(seconds[rival])
        if taken >= row.get("seconds", inf):
            continue
        outcomes[rival] = latest[rival]
        rows[rival] = _row(crew.setting, latest[rival], taken)
        if rival == "engine":
            rows[rival]["unchanged"] = _unchanged(latest[rival].choices)


def _row(setting: Setting, outcome: Outcome, seconds: float) -> dict[str, Any]:
    """Return what is told of a rival's outcome."""
    return {
        "setting": list(setting),
        "seconds": seconds,
        "cpu_seconds": outcome.cpu_seconds,
        "tokens_per_second": sum(map(len, outcome.choices.values())) / seconds,
        "answers": len(outcome.choices),
        "near_ties": len(outcome.near_ties),
    }


def _unchanged(choices: Mapping[Key, Sequence[int]]) -> float:
    """Return the share of pruned models' answers that are the base model's."""
    return fmean(
        tokens == choices[question, str(BASE)]
        for (question, variant), tokens in choices.items()
        if variant != str(BASE)
    )


def report(facts: Mapping[str, Any]) -> str:
    """Return the table, with lines on the work and on the engine's answers."""
    lines = [
        f"{len(facts['variants'])} variants × {facts['questions']} questions, shape "
        f"{facts['shape']}; each rival at its fastest processes × threads",
        f"{'':16}{'threads':>8}{'s':>9}{'CPU s':>9}{'×':>7}{'tokens/s':>10}  differ",
    ]
    for name, row in facts["rows"].items():
        if "failure" in row:
            lines.append(f"{name:16}not measured: {row['failure']}")
            continue
        ratio, compared = "–", "–"
        if "ratio" in row:
            ratio = f"{row['ratio']:.2f}"
            compared = f"{row['differing']} of {row['answers']}"
        lines.append(
            f"{name:16}{'{} × {}'.format(*row['setting']):>8}{row['seconds']:9.2f}"
            f"{row['cpu_seconds']:9.2f}{ratio:>7}"
            f"{row['tokens_per_second']:10.0f}  {compared}"
        )
    engine = facts["rows"].get("engine", {})
    if "unchanged" in engine:
        lines.append(
            f"engine: {engine['unchanged']:.1%} of the pruned models' answers "
            f"unchanged; near ties (margin at most {facts['near_tie']:g}): {engine['near_ties']}, "
            f"differing {engine.get('near_ties_differing', 0)}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
