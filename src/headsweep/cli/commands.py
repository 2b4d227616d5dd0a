"""The tool's commands. This module imports little, so that the command line starts fast."""

import argparse
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headsweep.arguments import add_command, refuse_ignored
from headsweep.choices import GraderName
from headsweep.cli import examples
from headsweep.cli.asked import Asked
from headsweep.cli.first_questions import described_try, first_questions
from headsweep.cli.head_map import head_map
from headsweep.cli.sweep import sweep
from headsweep.errors import ConfigError
from headsweep.files.plain_files import expanded
from headsweep.models.gguf import Kind
from headsweep.telling import told
from headsweep.text import counted, percent, points

_EACH = 5  # of the best and the worst heads are printed
_COLUMNS = ("question", "answer", "id", "subject", "level", "solution")


def add_sweep(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `sweep` to a command line."""
    _add_asking(commands, "sweep", sweep, _sweep, examples.SWEEP)


def add_map(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `map` to a command line."""
    _add_asking(commands, "map", head_map, _map, examples.MAP, without=("batch_size",))


def add_try(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `try` to a command line."""
    _add_asking(commands, "try", first_questions, _try, examples.TRY, options=(), without=("n",))


def _add_asking(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    function: Callable[..., Any],
    handler: Callable[..., Any],
    epilog: str,
    *,
    options: Sequence[str] = ("model", "benchmark"),
    without: Sequence[str] = (),
) -> None:
    """Add a command that is asked what `Asked` has; each column is an option of its own."""
    command = add_command(
        commands,
        name,
        function,
        handler=handler,
        epilog=epilog,
        options=options,
        without=("columns", *without),
        fields=Asked,
    )
    for column in _COLUMNS:
        text = f"your own benchmark: column of the {column}"
        command.add_argument(f"--{column}-column", metavar="NAME", help=text)


def _with_columns(options: dict[str, Any]) -> dict[str, Any]:
    """Return options with those of columns in one mapping."""
    named = {column: options.pop(f"{column}_column") for column in _COLUMNS}
    return {**options, "columns": {name: value for name, value in named.items() if value}}


def _try(**options: Any) -> None:
    _end_orderly()
    given = _with_columns(options)
    print(described_try(first_questions(**given), given))


def _map(**options: Any) -> None:
    _end_orderly()
    table = head_map(**_with_columns(options))
    from headsweep.experiments.maps.outcomes import UNIT_OF_OUTCOME  # slow, and untold, before it
    from headsweep.results.facts import FORMS

    for outcome, scores in table[table["kind"] == "head"].groupby("outcome", sort=False):
        ranked = scores.sort_values("change", ascending=False, kind="stable")
        shown = scores["shown"].notna().sum()
        unit = UNIT_OF_OUTCOME[str(outcome)]
        print(
            f"{outcome}, {unit}: {scores['n'].iloc[0]} questions; {shown} of {len(scores)} heads "
            "are shown to change it"
        )
        print("without head   change  95% over all heads  p corrected")
        said = FORMS[unit]
        heads: list[Any] = list(ranked.itertuples())
        lines = [
            f"{head.variant:<12}  {said(head.change):>7}  "
            f"[{said(head.band_low):>7}, {said(head.band_high):>7}]  {head.adjusted:>11.4f}"
            for head in heads
        ]
        print(*_best_and_worst(lines), "", sep="\n")
    out = Path(options["out"])
    print(f"all heads: {out / 'results/map/maps/heads/heads.csv'}")
    print(f"picture: {out / 'results/map/figures/map_heads.png'}")


def _sweep(**options: Any) -> None:
    _end_orderly()
    table = sweep(**_with_columns(options))
    from headsweep.results.truncation import NOTABLE_SHARE  # slow, and untold, before it

    base: Any = next(table[table["variant"] == "base"].itertuples())
    pruned = table[table["variant"] != "base"].sort_values("gain", ascending=False, kind="stable")
    heads: list[Any] = list(pruned.itertuples())
    print(f"base model: {percent(base.accuracy)} of {base.n} questions; gains in points")
    cut = table["truncated"].mean()
    if cut > NOTABLE_SHARE:
        print(
            f"{percent(cut)} of all answers were cut; `headsweep try` says where, and whether a "
            f"higher --max-new-tokens lets them end"
        )
    print()
    print("without head  accuracy    gain  95% over all heads  p corrected")
    lines = [
        f"{head.variant:<12}  {percent(head.accuracy):>8}  {points(head.gain):>6}  "
        f"[{points(head.band_low):>6}, {points(head.band_high):>6}]    {head.adjusted:>9.4f}"
        + ("  perhaps by cut answers" if head.cut_decides else "")
        for head in heads
    ]
    print(*_best_and_worst(lines), sep="\n")
    out = Path(options["out"])
    csv = out / "results/sweep/controls/heads/heads.csv"
    print(f"\nall {counted(len(heads), 'head')}: {csv}")
    print(f"figures and report: {_again(out, 'results/sweep/config.json')}")


def _best_and_worst(lines: list[str]) -> list[str]:
    """Return the first and the last lines, if there are many, with dots between them."""
    if len(lines) <= 2 * _EACH + 1:
        return lines
    return [*lines[:_EACH], "...", *lines[-_EACH:]]


def _end_orderly() -> None:
    """Treat SIGTERM as Ctrl-C, so that the engine is stopped and finished answers are kept."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def _again(folder: Path, config: str) -> str:
    """Return the command that makes a run in a folder from a config there."""
    folder = expanded(folder)  # in quotes the shell leaves "~" as it is
    return shlex.join(["headsweep", "run", str(folder / config), "--directory", str(folder)])


def peek(run: str | None = None, *, page: bool = False) -> None:
    """Look at a run's heads while it answers; no verdicts.

    Examples:
        headsweep peek
        headsweep peek my-sweep --page

    Args:
        run: its name in results/, its folder, or a folder that holds it (default: a list of the
            runs here, and the only unfinished one)
        page: write the report's page so far, and again every minute until the run has ended
    """
    if page:
        with told("beginning"):
            from headsweep.cli.peek_page import follow  # slow to import

        follow(run)
        return
    with told("looking at the answers"):
        from headsweep.cli.peek import look

        said = look(run)
    print(said)


def solve(
    question: str | None = None,
    *,
    file: Path | None = None,
    run: Path,
    selector: str | None = None,
    n: int | None = None,
    verifier: str | None = None,
    json: bool = False,
) -> None:
    """Answer a question with the heads that a run's selector picks.

    Examples:
        headsweep solve --file questions.txt --run results/demo -n 4 --json

    Args:
        question: the question; without it, stdin is read, one question per line
        file: a file with one question per line
        run: folder of a run: results/demo
        selector: which of the run's selectors (default: the only one)
        n: how many heads answer (default: 8, or all)
        verifier: module:function that takes the question and a list of texts and returns their
            scores; the answer with the highest score is chosen, not the majority's
        json: print one JSON object per question
    """
    from headsweep.cli.solve import Solver, to_json, to_text

    questions = _questions(question, file)
    for solved in Solver(run, selector=selector, n=n, verifier=verifier).each(questions):
        print((to_json if json else to_text)(solved), flush=True)


def pilot(config: Path, *, cores: int | None = None) -> None:
    """Measure a small part of a config: tokens/s, hours.

    Examples:
        headsweep pilot config/sprint.yaml --cores 8

    Args:
        config: for example config/sprint.yaml
        cores: CPU cores to use (default: all)
    """
    from headsweep.cli.pilot import show

    _end_orderly()
    show(config, cores)


def store(
    configs: list[Path],
    *,
    prune: bool = False,
    empty_trash: bool = False,
    yes: bool = False,
) -> None:
    """Show what the store holds, its size, and which configs need it.

    Examples:
        headsweep store
        headsweep store --prune config/sprint.yaml

    Args:
        configs: configs whose files are needed, besides those of the runs
        prune: move what no config needs to the store's trash
        empty_trash: remove what lies in the trash
        yes: do it without asking
    """
    from headsweep.cli import store as tool

    if prune and empty_trash:
        raise ConfigError("--prune and --empty-trash are given; give one of them")
    if not prune and not empty_trash:
        refuse_ignored({"--yes": yes}, "only --prune and --empty-trash ask")
    if empty_trash:
        named = bool(configs)
        refuse_ignored({f"{' '.join(map(str, configs))}": named}, "--empty-trash removes all")
    if prune:
        tool.prune(configs, yes=yes)
    elif empty_trash:
        tool.empty_trash(yes=yes)
    else:
        tool.show(configs)


def export(run: Path, folder: Path, *, without_texts: bool = False) -> None:
    """Copy what a run is made again from, as a dataset, to hand it on.

    Examples:
        headsweep export results/demo my-export

    Args:
        run: folder of a run: results/demo
        folder: where to put it
        without_texts: leave out the texts of questions, if their licence forbids sharing them
    """
    from headsweep.cli.export import export as exported
    from headsweep.files.safe_files import written_to

    with written_to("FOLDER", folder, "folder"):
        files = exported(run, folder, without_texts)
    size = sum(file.stat().st_size for file in files) / 1e6
    print(f"{len(files)} files, {size:.1f} MB, and their records are in {folder}.")
    print(f"repeat the run: {_again(folder, 'config.json')}")


def export_gguf(
    model: str,
    *,
    out: Path | None = None,
    gguf_type: Kind = "f16",
    gguf_tokenizer: Path | None = None,
) -> None:
    """Write a model, pruned or not, as GGUF, for llama.cpp.

    Examples:
        headsweep export-gguf smaller --gguf-type q8_0

    Args:
        model: hub id or folder of a Llama, Mistral or Qwen2, or of a Qwen3 with equal layers
        out: file to write (default: here, named after the model and the type)
        gguf_type: type of its matrices; llama-cpp-python makes q4_k_m
        gguf_tokenizer: GGUF file to take the tokenizer from, if need be
    """
    from headsweep.models import gguf_export

    out = out or Path(f"{Path(model).resolve().name}-{gguf_type}.gguf")
    print(gguf_export.export_gguf(model, out, kind=gguf_type, tokenizer=gguf_tokenizer))


def grade(
    file: Path,
    *,
    grader: GraderName = "math",
    answer_column: str = "answer",
    gold_column: str = "gold",
    final: bool = False,
    workers: int | None = None,
    out: Path | None = None,
) -> None:
    """Grade a file of any model's answers, by a pool that cannot hang.

    Examples:
        headsweep grade answers.jsonl --grader numeric --out graded.csv

    Args:
        file: CSV, JSON Lines (.jsonl) or Parquet, with a row for each answer
        grader: how answers are found and compared: as {graders}; gsm8k as math, and where there is
            no box the last number counts
        answer_column: column of what the model wrote
        gold_column: column of the gold answer
        final: the answers are final ones: they need no box
        workers: processes that grade (default: as many as pay)
        out: CSV to write: the file's columns, then correct, cause, final_answer and form
    """
    from headsweep.cli.grade import grade as graded

    graded(file, grader, answer_column, gold_column, final, workers, out)


def luck(
    *,
    k: int,
    n: int,
    base: float,
    changed: float | None = None,
    best: float | None = None,
) -> None:
    """Say what the best of K tries gains by luck alone.

    Examples:
        headsweep luck -k 14 -n 200 --base 0.69 --best 0.72

    Args:
        k: how many tries there were, each held against the same base
        n: how many questions they answered
        base: share of the questions that the base has right, as in 0.68
        changed: share of the outcomes that one try changes, won or lost (default: as many as
            answers drawn anew would)
        best: share that the best try has right: how likely is it by luck?
    """
    from headsweep.cli.luck import told

    print(told(k, n, base, changed, best))


def doctor() -> None:
    """Print facts for a bug report: versions, machine, SLURM.

    Examples:
        headsweep doctor
    """
    from headsweep.cli.machine import describe

    describe()


def _questions(question: str | None, file: Path | None) -> list[str]:
    if question is not None and file is not None:
        raise ConfigError("a question and --file are given; give one of the two")
    if question is not None:
        if not question.strip():
            raise ConfigError("the question is empty; give its text")
        return [question]
    try:
        text = (file.read_bytes() if file else sys.stdin.buffer.read()).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        name = f"--file {file}" if file else "standard input"
        raise ConfigError(f"{name} cannot be read ({error}); give UTF-8 text") from error
    # Not `splitlines`, which also splits at characters that stand inside a question.
    lines = [line.rstrip("\r") for line in text.removeprefix("\ufeff").split("\n") if line.strip()]
    if not lines:
        raise ConfigError("there is no question; give one, or a file with one per line")
    return lines
