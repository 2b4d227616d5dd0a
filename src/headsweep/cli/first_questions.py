"""`headsweep try`: the first questions of a sweep, looked at before the sweep is begun.

The whole model answers them as in the sweep that `headsweep sweep` makes in the same folder, with
the same model, prompt and limit: that sweep takes the answers over. Heavy modules are imported
inside functions, because the command line imports this module.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from headsweep.choices import COMPARED, BenchmarkGrader
from headsweep.cli.asked import MODEL, QUESTION_SET, Asked
from headsweep.cli.own_prompt import source_of
from headsweep.cli.sweep import OUT
from headsweep.cli.without_snakemake import answer, begun
from headsweep.config.experiments import Layers
from headsweep.errors import ConfigError
from headsweep.telling import told
from headsweep.text import counted, duration, one_line, visible

if TYPE_CHECKING:
    import pandas as pd

    from headsweep.config import Config
    from headsweep.store.batches import Batch

RUN = "try"
_QUESTIONS = 10
_SHOWN = 3
_MOST_CHARACTERS = 1200
"""Of an answer that is shown; of a longer one the first half and the last are."""
_LONGEST_SWEEP = 1.0
"""Hours up to which a sweep of all layers is proposed, where no layers are named."""
_NIGHT = 8.0
"""Hours up to which a sweep of all questions is proposed."""
_LEAST_LIMIT = 64


@dataclass(frozen=True)
class Limit:
    """A token limit, and why it is chosen."""

    tokens: int
    why: str


def choose_limit(used: int, answers: "pd.DataFrame") -> Limit:
    """Return the limit for a sweep, given the one that some answers were written with.

    A higher one helps answers that were cut and do not repeat themselves. Where those that were cut
    do, a lower one saves their time, if it is far above all others.

    Args:
        used: the limit of the answers.
        answers: has columns ``tokens``, ``cut`` and ``looping``.
    """
    cut = answers[answers["cut"]]
    ended = answers[~answers["cut"]]
    longest = 0 if ended.empty else int(ended["tokens"].max())
    said = f"the longest answer that ended has {counted(longest, 'token')}"
    if cut.empty:
        return Limit(used, f"none was cut, and {said}")
    if (cut["tokens"] < used).any():
        return Limit(used, "answers were cut where the model reads no more, not at the limit")
    going_on = int((~cut["looping"]).sum())
    if going_on:
        return Limit(
            2 * used, f"{going_on} of {len(answers)} were cut and do not repeat themselves"
        )
    if ended.empty:
        return Limit(used, "all were cut and repeat themselves, which no limit mends")
    enough = _LEAST_LIMIT
    while enough < 2 * longest:
        enough *= 2
    why = f"those that were cut repeat themselves, and {said}"
    return Limit(min(enough, used), why)


def choose_grader(golds: Sequence[str]) -> tuple[BenchmarkGrader, str]:
    """Return the grader that fits all gold answers of a benchmark of one's own, and why.

    None of them is empty: reading the benchmark refuses those.
    """
    from headsweep.benchmarks.golds import is_mathematics, should_be

    def fits(name: str) -> bool:
        if name == "math" and not all(map(is_mathematics, golds)):
            return False
        return all(should_be(gold, name) is None for gold in golds)

    name = next(filter(fits, COMPARED))
    return name, f"all {len(golds)} gold answers are {COMPARED[name]}"


@dataclass(frozen=True)
class Tried:
    """What the whole model answers to the first questions."""

    config: "Config"
    answers: "pd.DataFrame"
    """A row for each: ``question``, ``gold``, ``text``, ``answer`` (None: there is none),
    ``correct``, ``tokens``, ``cut`` and ``looping``."""
    seconds: float
    """That all of them took, with loading the model."""
    questions: int
    """Of the whole benchmark."""
    grader_why: str
    limit: Limit

    def hours(self, layers: Layers, questions: int) -> float:
        """Return the hours of a sweep of layers on so many questions, at the chosen limit, at most.

        A step decodes one token of each answer in a batch, so an answer that goes on alone takes as
        many steps as a batch of its length. The sweep is taken to decode no more answers together
        than these, and none faster: most are, as they begin as the model's and are only verified
        so far. Its steps are bounded as those of any list of tasks (Graham 1966).
        """
        from headsweep.store.batches import expand

        model = self.config.models[MODEL]
        heads = sum(len(model.heads_in(layer)) for layer in expand(layers, model.layers))
        tokens = self.answers["tokens"]
        together = min(len(tokens), model.batch_size or len(tokens))
        of_step = self.seconds / max(tokens.max(), tokens.sum() / together)
        by_limit = tokens.clip(upper=self.limit.tokens)
        going_on = self.answers["cut"] & ~self.answers["looping"]
        by_limit = by_limit.mask(going_on, self.limit.tokens)
        in_full_batches = questions * (1 + heads) * by_limit.mean() / together
        return float(of_step * (in_full_batches + by_limit.max()) / 3600)


def first_questions(
    model: str,
    benchmark: str,
    *,
    layers: Literal["all"] | Sequence[int] | None = None,
    out: str = OUT,
    cores: int | None = None,
    **options: Any,
) -> Tried:
    """Answer ten questions with the whole model before it is swept.

    Args:
        model: hub id, folder in the hub's format, or GGUF file
        benchmark: a .csv or .jsonl file, a dataset on the hub, or math500, math_train, gsm8k,
            generated_math, generated_gsm8k
        layers: layers of the sweep that is to follow, as in 5,15; or all (default: all, or one
            where all take over an hour)
        out: folder of the results, the sweep's
        cores: CPU cores to use (default: all)
        grader: your own benchmark: how answers are compared (default: what fits its gold answers)
        **options: other fields of `headsweep.cli.asked.Asked`, by name

    Raises:
        HeadsweepError: one line that says what is wrong and what to do.
    """
    with told("beginning"):  # slow to import
        from headsweep.files.record import read_record
        from headsweep.files.tables import ANSWERS
        from headsweep.store.batches import Batch
        from headsweep.variants import BASE

    asked = Asked(model=model, benchmark=benchmark, **options)
    greedy = asked.greedy()
    with told("reading the questions"):
        source = source_of(asked.questions)
    why = "it was asked for"
    if asked.grader is None:
        why = "it is the benchmark's own"
        if asked.questions["benchmark"] == "custom":
            grader, why = choose_grader(source["answer"].tolist())
            asked = replace(asked, grader=grader)
    count = len(source) - len(asked.examples or ())
    asked = replace(asked, n=min(_QUESTIONS, count))
    config = asked.config(RUN, {"greedy": greedy}, {})
    depth = config.models[MODEL].layers
    numbers = [] if layers is None or layers == "all" else list(layers)
    if beyond := [number for number in numbers if number >= depth]:
        raise ConfigError(
            f"--layers {beyond[0]}: the model has {depth} layers; choose from 0 to {depth - 1}"
        )
    with begun(config, out) as store:
        batch = Batch(store, MODEL, "greedy", QUESTION_SET)
        answer(store, cores, [batch])
        with told("grading"):
            answers = _graded(batch)
        record = read_record(batch.path(ANSWERS, variant=BASE))
    limit = choose_limit(asked.max_new_tokens, answers)
    return Tried(store.config, answers, record["seconds"], count, why, limit)


def _graded(batch: "Batch") -> "pd.DataFrame":
    """Return the answers of a batch's base model, as `Tried` has them."""
    from headsweep.grading.matrix import grade_batch
    from headsweep.statistics.answers import loops

    questions, answers, graded = grade_batch(batch, batch.store.config.grading)
    (written,) = answers.values()
    table = questions[["question_id", "question", "answer"]].rename(columns={"answer": "gold"})
    table = table.merge(written[["question_id", "text", "token_ids"]], on="question_id")
    table = table.merge(
        graded[["question_id", "answer", "correct", "tokens", "stop_reason"]], on="question_id"
    )
    cut = table["stop_reason"] == "length"
    return table.assign(cut=cut, looping=table["token_ids"].map(loops).astype(bool))


def described_try(tried: Tried, given: Mapping[str, Any]) -> str:
    """Return what a user reads of the first answers; `given` are the options of the command."""
    from headsweep.config.titles import title

    answers = tried.answers
    total = len(answers)
    config = tried.config
    model, questions = config.models[MODEL], config.questions[QUESTION_SET]
    used = config.decodings["greedy"].max_new_tokens
    cut = answers["cut"].sum()
    looping = (answers["cut"] & answers["looping"]).sum()
    cut_there = "cut"  # or where the model reads no more, which is told with the limit
    if (answers.loc[answers["cut"], "tokens"] == used).all():
        cut_there = f"cut at {used} tokens"
    lines = [
        f"{model.title} answered {total} of {tried.questions} questions of "
        f"{title(config, 'questions', QUESTION_SET)} in {duration(tried.seconds / 3600)}",
        f"  right                   {answers['correct'].sum():>3} of {total}",
        f"  {cut_there:<23} {cut:>3} of {total}"
        + (f", of which {looping} repeat themselves" if looping else ""),
        f"  without a final answer  {answers['answer'].isna().sum():>3} of {total}",
        "",
        f"grader: {questions.grader_name}; {tried.grader_why}",
        f"limit: {tried.limit.tokens} tokens; {tried.limit.why}",
        "",
    ]
    for number in _chosen(answers):
        lines += [*_shown(answers.loc[number]), ""]
    return "\n".join([*lines, *_next(tried, given)])


def _chosen(answers: "pd.DataFrame") -> list[Any]:
    """Return the index of the answers to show: a right, a wrong and a missing one, then others."""
    read = answers["answer"].notna()
    groups = (answers["correct"], ~answers["correct"] & read, ~answers["correct"] & ~read)
    firsts = [answers.index[group][0] for group in groups if group.any()]
    others = [number for number in answers.index if number not in firsts]
    return sorted([*firsts, *others][:_SHOWN])


def _shown(row: Any) -> list[str]:
    """Return an answer as it is, with its question and how it was read."""
    verdict = "right" if row["correct"] else "wrong"
    ended = "cut at" if row["cut"] else "ended after"
    read = one_line(row["answer"]) if isinstance(row["answer"], str) else "none"
    text = visible(row["text"])
    if len(text) > _MOST_CHARACTERS:
        half = _MOST_CHARACTERS // 2
        left_out = len(text) - 2 * half
        text = f"{text[:half]}\n[... {left_out} characters ...]\n{text[-half:]}"
    return [
        f"{verdict}: question {row['question_id']}, {ended} {row['tokens']} tokens; "
        f"final answer: {read}; gold: {one_line(row['gold'])}",
        f"  {one_line(row['question'])}",
        *(f"  | {line}" for line in text.splitlines()),
    ]


def _next(tried: Tried, given: Mapping[str, Any]) -> list[str]:
    """Return how long sweeps take, and the command of the one that is proposed."""
    depth = tried.config.models[MODEL].layers
    middle: Layers = (depth // 2,)
    layers: Layers | None = given["layers"]
    said = []
    proposed: list[Layers] = ["all", middle] if layers is None else [layers]
    for each in proposed:
        name = "all layers" if each == "all" else f"layer {','.join(map(str, each))}"
        said.append(f"{name}: {duration(tried.hours(each, tried.questions))} at most")
    if layers is None:
        layers = "all" if tried.hours("all", tried.questions) <= _LONGEST_SWEEP else middle
    used = tried.config.decodings["greedy"].max_new_tokens
    options = {**given, "layers": layers, "max_new_tokens": tried.limit.tokens}
    options["grader"] = tried.config.questions[QUESTION_SET].grader
    lines = [f"a sweep of {'; of '.join(said)}"]
    hours = tried.hours(layers, tried.questions)
    if hours > _NIGHT:
        in_a_night = int(tried.questions * _NIGHT / hours) // 10 * 10
        options["n"] = max(in_a_night, len(tried.answers))
        lines.append(
            f"with {options['n']} questions {duration(tried.hours(layers, options['n']))} at most; "
            f"a larger --n keeps their answers"
        )
    lines.append(f"next: {command('sweep', options)}")
    if tried.limit.tokens != used:
        again = command("try", {**given, "max_new_tokens": tried.limit.tokens})
        lines += [
            f"With another limit than {used} the model answers anew. To look at ten such answers "
            f"first: {again}"
        ]
    else:
        lines += [f"It keeps these {counted(len(tried.answers), 'answer')}."]
    return lines


def command(name: str, options: Mapping[str, Any]) -> str:
    """Return a command as one types it, without the options that have their default."""
    words = ["headsweep", name]
    for key in ("model", "benchmark"):
        words += [str(options[key])] if name == "try" else [f"--{key}", str(options[key])]
    for key, value in options.items():
        if key in ("model", "benchmark") or value is None or value == _DEFAULTS.get(key):
            continue
        if key == "columns":
            for column, title in value.items():
                words += [f"--{column}-column", title]
            continue
        text = value if isinstance(value, str | int) else ",".join(map(str, value))
        words += [f"--{key.replace('_', '-')}", str(text)]
    return shlex.join(words)


_DEFAULTS = {"out": OUT, "split": "test", "max_new_tokens": 2048, "device": "auto", "columns": {}}
"""Of options that `try` and `sweep` share."""
