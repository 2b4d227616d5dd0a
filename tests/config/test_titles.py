"""Titles tell the entries of a section apart, in every shipped config and whatever differs."""

import pytest
import yaml
from snakemake.exceptions import WorkflowError

from example_config import SHIPPED, STUDIES, changed
from headsweep.cli import main as cli
from headsweep.config import EXPERIMENTS, load, parse
from headsweep.config.titles import check_titles, title, titles
from headsweep.errors import ConfigError
from headsweep.store.layout import Store, write_config
from headsweep.store.revisions import resolve
from headsweep.workflow.session import checked
from mini import MINIATURE, ROOT

AUTHORS = {
    "sweeps": {
        "table1-llama3-8b": "llama3-8b, authors' grading",
        "table2-qwen2.5-math-1.5b": "qwen2.5-math-1.5b, authors' grading, layers 0, 5, 15, 27",
        "table3-qwen2.5-math-7b": "qwen2.5-math-7b, authors' grading",
        "table4-qwen2.5-7b": "qwen2.5-7b, authors' grading",
        "figure5-qwen2.5-math-1.5b": "qwen2.5-math-1.5b, authors' grading, layer 21",
        "table1-default-rules": "llama3-8b, default grading",
        "table2-default-rules": "qwen2.5-math-1.5b, default grading",
        "table3-default-rules": "qwen2.5-math-7b, default grading",
        "table4-default-rules": "qwen2.5-7b, default grading",
    },
    "selectors": {"math": "MATH-500", "gsm8k": "GSM8K"},
}
OURS = {
    "sweeps": {
        "table1-llama3-8b": "llama3-8b, layers 5, 10, 15, 31",
        "layer0-llama3-8b": "llama3-8b, layer 0",
        "table2-qwen2.5-math-1.5b": "qwen2.5-math-1.5b, layers 0, 5, 15, 27",
        "table3-qwen2.5-math-7b": "qwen2.5-math-7b",
        "table4-qwen2.5-7b": "qwen2.5-7b",
        "figure5-qwen2.5-math-1.5b": "qwen2.5-math-1.5b, layer 21",
    },
    "selectors": {
        "math": "MATH-500",
        "gsm8k": "GSM8K",
        "math-to-gsm8k": "GSM8K, trained on MATH",
        "gsm8k-to-math": "MATH-500, trained on GSM8K",
    },
    "comparisons": {
        "llama3-8b": "llama3-8b, MATH-500",
        "qwen2.5-math-1.5b": "qwen2.5-math-1.5b, MATH-500",
        "qwen2.5-math-7b": "qwen2.5-math-7b, MATH-500",
        "qwen2.5-7b": "qwen2.5-7b, MATH-500",
        "gsm8k": "qwen2.5-math-1.5b, GSM8K",
    },
}
DEMO = {
    "sweeps": {"math": "MATH-like questions"},
    "maps": {"gsm8k": "GSM8K-like"},
    "selectors": {"math": "MATH-like", "gsm8k": "GSM8K-like"},
    "frontiers": {"gsm8k": "GSM8K-like"},
    "comparisons": {"math": "MATH-like"},
    "compressions": {"words": "Word problems", "reasoner": "MATH-like"},
}
VERBATIM = {"sprint-authors": AUTHORS, "sprint": OURS, "demo": DEMO}


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_titles_of_a_shipped_config_differ_and_are_short(file):
    config = load(file)
    check_titles(config)
    found = {section: titles(config, section) for section in EXPERIMENTS}
    for section, own in found.items():
        assert list(own) == list(getattr(config, section))
        assert len(set(own.values())) == len(own), section
        assert all(0 < len(each) <= 60 for each in own.values())
    if file.stem in VERBATIM:
        assert {section: own for section, own in found.items() if own} == VERBATIM[file.stem]


SWEEP = {"model": "big", "questions": "test", "layers": [0, 5, 6, 7, 9, 10]}
OF_MAP = {"map": "known", "top": 2}
LEARNT = {"model": "big", "train": "train", "test": "test", "layers": "all"}
CHOSEN = {**LEARNT, "embedder": "minilm"}
STUDY = {"solver": "tiny", "data": "made"}
OWN = {"model": "big", "train": "train", "test": "test"}
OTHERS = STUDIES | {
    "models": STUDIES["models"] | {"big": STUDIES["models"]["big"] | {"title": "Big"}},
    "questions": {
        **STUDIES["questions"],
        "gsm": {"benchmark": "gsm8k", "split": "test"},
        "gsm_train": {"benchmark": "gsm8k", "split": "train"},
        "mine": {"benchmark": "custom", "split": "a", "file": "our_own.csv"},
        "other": {"benchmark": "custom", "split": "b", "file": "other.csv"},
        "words": {"benchmark": "gsm8k", "split": "test", "title": "Word problems"},
    },
    "decodings": STUDIES["decodings"] | {"short": {"max_new_tokens": 7}},
    "embedders": STUDIES["embedders"] | {"tiny": {"model": "tiny"}},
    "maps": {"known": {"model": "big", "questions": "train", "sampling": ["T0.6"]}},
}


@pytest.mark.parametrize(
    ("section", "entry", "changes", "wanted"),
    [
        ("sweeps", SWEEP, [{}], ["MATH-500 questions"]),
        ("sweeps", SWEEP, [{}, {"model": "tiny", "layers": "all"}], ["Big", "tiny"]),
        ("sweeps", SWEEP, [{}, {"questions": "gsm"}], ["MATH-500 questions", "GSM8K questions"]),
        (
            "sweeps",
            SWEEP,
            [{}, {"layers": [3]}, {"layers": "all"}],
            [f"MATH-500 questions, {own}" for own in ("layers 0, 5 to 7, 9, 10", "layer 3")]
            + ["MATH-500 questions, all layers"],
        ),
        (
            "sweeps",
            SWEEP,
            [{"heads": [1]}, {"heads": [2, 0, 1]}, {"decoding": "authors"}],
            [f"MATH-500 questions, default prompt, {own}" for own in ("head 1", "heads 0 to 2")]
            + ["MATH-500 questions, authors' prompt"],
        ),
        (
            "sweeps",
            SWEEP,
            [{}, {"grading": "authors"}, {"decoding": "short", "title": "Brief"}],
            [*(f"MATH-500 questions, {own} grading" for own in ("default", "authors'")), "Brief"],
        ),
        (
            "sweeps",
            SWEEP,
            [{}, {"decoding": "short"}],
            [f"MATH-500 questions, decoding {own}" for own in ("greedy", "short")],
        ),
        (  # heads that another entry chooses, by its default outcome and by others
            "sweeps",
            SWEEP,
            [{"heads": OF_MAP}, {"heads": {**OF_MAP, "outcome": "preference"}}],
            [f"MATH-500 questions, top 2 of map known{own}" for own in ("", " by preference")],
        ),
        ("selectors", CHOSEN, [{"train": "gsm_train"}], ["MATH-500"]),
        (
            "selectors",
            CHOSEN,
            [{"test": "gsm", "train": "gsm_train"}, {"test": "gsm"}, {"test": "mine"}],
            ["GSM8K", "GSM8K, trained on MATH", "our_own.csv, trained on MATH"],
        ),
        (  # two files of one's own are not known to be of one benchmark, nor of two
            "selectors",
            CHOSEN,
            [{"test": "mine", "train": "other"}, {"test": "mine", "train": "gsm"}],
            ["our_own.csv", "our_own.csv, trained on GSM8K"],
        ),
        (
            "selectors",
            CHOSEN,
            [{}, {"embedder": ["tiny", "minilm"]}],
            ["MATH-500, embedder minilm", "MATH-500, embedder tiny or minilm"],
        ),
        (
            "frontiers",
            LEARNT,
            [{}, {"train": "gsm_train"}, {"test": "gsm", "train": "gsm_train"}],
            ["MATH-500", "MATH-500, tuned on GSM8K", "GSM8K"],
        ),
        (
            "comparisons",
            {"model": "big", "questions": "test"},
            [{}, {"decodings": ["short", "greedy"]}],
            ["MATH-500, greedy against authors", "MATH-500, short against greedy"],
        ),
        ("compressions", STUDY, [{}, {"solver": "base"}], ["tiny", "base"]),
        ("compressions", STUDY, [{}, {"data": "asdiv"}], ["Word problems", "ASDiv-A"]),
        (  # a solver and a model tested on what has one title
            "compressions",
            {},
            [STUDY, OWN | {"test": "words"}],
            ["Word problems", "Word problems, trained on MATH"],
        ),
    ],
)
def test_a_title_says_what_differs_and_no_more(section, entry, changes, wanted):
    entries = {f"e{place}": entry | own for place, own in enumerate(changes)}
    config = parse(changed(OTHERS, section, entries))
    assert list(titles(config, section).values()) == wanted
    assert [title(config, section, name) for name in entries] == wanted
    check_titles(config)


def with_another(**changes):
    own = MINIATURE["sweeps"]["math"]
    return changed(MINIATURE, "sweeps/again", {**own, **changes})


def test_equal_titles_are_refused_before_a_run_and_not_when_it_is_read(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    alike = with_another(placebos="none")
    write_config(Store(resolve(parse(alike))))
    of_a_job = checked(alike, (), look=False).config
    assert of_a_job.sweeps.keys() == {"math", "again"}
    with pytest.raises(WorkflowError) as error:
        checked(alike, (), look=True)
    refused = (
        "sweeps.math and sweeps.again are both called 'MATH-like questions' in the report; write "
        "a `title` in sweeps.again that says what differs"
    )
    assert str(error.value) == refused
    file = tmp_path / "my.yaml"
    for values, status in ((alike, 2), (with_another(title="Without placebos"), 0)):
        file.write_text(yaml.safe_dump(values, sort_keys=False))
        assert cli.main(["check", str(file)]) == status
        assert (refused in capsys.readouterr().err) == bool(status)


def test_a_title_written_twice_is_refused_in_every_section():
    values = yaml.safe_load((ROOT / "config/demo.yaml").read_text(encoding="utf-8"))
    for section in EXPERIMENTS:
        first = next(iter(values[section].values()))
        twice = {name: {**first, "title": "The same"} for name in ("one", "two")}
        with pytest.raises(ConfigError, match=rf"^{section}.one and {section}.two are both called"):
            check_titles(parse(changed(values, section, twice)))
