"""A prompt of the user's own for `sweep`, `map` and `try`: a file with a template.

Heavy modules are imported inside functions, because the command line imports this module.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headsweep.config import parse
from headsweep.config.files import read_values
from headsweep.errors import BenchmarkError, ConfigError
from headsweep.files.plain_files import expanded

if TYPE_CHECKING:
    import pandas as pd

ABOUT = """\
A prompt file, for a model without a chat template, is YAML:
  template: |-
    {examples}Question: {question}
    Answer:
  example: |+            # each row that --examples names, as {examples} has it
    Question: {question}
    Answer: {solution}

  stop: ["\\nQuestion:"]  # an answer ends before it writes one of these
An example may have {question}, {answer} and {solution}. Its rows are not asked.
The prompt is part of what names the answers, so a changed one leaves former
answers as they are.
"""
_KEYS = ("template", "example", "stop")
_EXAMPLES = "{examples}"


def described_prompt(
    questions: Mapping[str, Any], file: str | Path | None, examples: Sequence[int] | None
) -> dict[str, Any]:
    """Return what a prompt file adds to the config section of a decoding: ``template``, ``stop``.

    Args:
        questions: config section of the question set.
        file: the prompt file; without one nothing is added.
        examples: rows of the set's source, numbered from 0, that stand solved in the template.

    Raises:
        ConfigError: the file cannot be read, has other keys, or does not fit the examples.
        BenchmarkError: the source cannot be read, or has no such row.
    """
    if file is None:
        if examples is not None:
            raise ConfigError(
                "--examples stand in a prompt of your own: give --prompt-file too; --help shows it"
            )
        return {}
    where = f"--prompt-file {file}"
    if not expanded(file).is_file():
        raise ConfigError(f"{where}: there is no such file; --help shows one")
    values = read_values(expanded(file))
    if other := [key for key in values if key not in _KEYS]:
        raise ConfigError(f"{where}: {other[0]!r} is no key of it; it has {', '.join(_KEYS)}")
    template = values.get("template")
    form = values.pop("example", None)
    if not isinstance(template, str) or not isinstance(form, str | None):
        raise ConfigError(f"{where}: template and example are texts; write both as `template: |-`")
    if (examples is None) == (_EXAMPLES in template):
        raise ConfigError(
            f"{where}: {_EXAMPLES} in the template and --examples go together; give both or neither"
        )
    if examples is not None:
        if form is None:
            raise ConfigError(f"{where}: write how `example` shows a row, as --help does")
        rows = _rows(questions, examples)
        values["template"] = template.replace(_EXAMPLES, "".join(_shown(form, row) for row in rows))
    return values


def source_of(questions: Mapping[str, Any]) -> "pd.DataFrame":
    """Return the split that a question set is drawn from, given its config section.

    Raises:
        HeadsweepError: it cannot be read, or is not pinned.
    """
    from headsweep.benchmarks.sources import read_source  # slow to import
    from headsweep.store.revisions import resolve

    values = {"run": "source", "questions": {"questions": dict(questions)}}
    return read_source(resolve(parse(values, "--benchmark")).questions["questions"])


def _rows(questions: Mapping[str, Any], examples: Sequence[int]) -> list[dict[Any, Any]]:
    """Return rows of a question set's source, in the order in which they are named."""
    if isinstance(examples, str):
        raise ConfigError("--examples all leaves no question to ask; name rows, as in 0,1,2")
    source = source_of(questions).set_index("source_row")
    if missing := [row for row in examples if row not in source.index]:
        raise BenchmarkError(
            f"--examples: there is no row {missing[0]}; choose from 0 to {source.index.max()}"
        )
    return [source.loc[row].to_dict() for row in examples]


def _shown(form: str, row: Mapping[str, Any]) -> str:
    """Return a row as an example shows it.

    Raises:
        BenchmarkError: it has no solution, and the form asks for it.
    """
    shown = form
    for name in ("question", "answer", "solution"):
        place = f"{{{name}}}"
        if place in form and not isinstance(row[name], str):
            raise BenchmarkError(
                f"--examples: row {row['question_id']} has no {name}; name the column of "
                f"solutions, or write {{answer}} in the prompt file"
            )
        shown = shown.replace(place, str(row[name]))
    return shown
