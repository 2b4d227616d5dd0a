"""What a config says is a word of a command: neither the shell nor a pattern reads it."""

import ast
import os
import re
import shlex
import string
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from snakemake.io import apply_wildcards, regex_from_filepattern
from snakemake.iocontainers import Wildcards
from snakemake.utils import format as snakemake_format

from example_config import SHIPPED, put_data
from headsweep.cli.main import parser
from headsweep.config import parse
from headsweep.errors import HeadsweepError
from headsweep.store.layout import Store
from headsweep.store.revisions import resolve
from headsweep.workflow.jobs import JOBS
from headsweep.workflow.rules import Rules
from mini import ROOT

HOSTILE = [" x", "'", "\\", "\ntouch PWNED\n", "$(touch PWNED)", "; touch PWNED;", "+[(", ".."]
ALL = "".join(HOSTILE)
WILDCARD = "{wildcards.x}"
NIGHTLY = "HEADSWEEP_NIGHTLY" in os.environ

SHELL = re.compile(r"^( +)shell:\n((?:\1    .*\n)+)", re.MULTILINE)


def rules_commands():
    """Return the shell commands of all rules, in the order in which the Snakefile includes them."""
    found = []
    for name in re.findall(r'^include: "(.*)"', (ROOT / "Snakefile").read_text(), re.MULTILINE):
        text = (ROOT / name).read_text(encoding="utf-8")
        blocks = SHELL.findall(text)
        assert len(blocks) == len(re.findall(r"\b(?:shell|run|script):", text)), name
        found += [ast.literal_eval(f"({block})") for _, block in blocks]  # plain text, no f-string
    return found


COMMANDS = rules_commands()


def words_of(command, **given):
    """Return the words that a command is to have, and the text that Snakemake makes of it."""
    words = shlex.split(command)
    for place, word in enumerate(words):
        if field := re.fullmatch(r"\{(\S+):q\}", word):
            words[place] = str(string.Formatter().get_field(field[1], (), given)[0])
        assert field or "{" not in word, f"{word} is not quoted: {command}"
    return words, snakemake_format(command, **given)


def in_a_shell(folder, commands):
    """Return the words that bash gives to each `headsweep` of some commands."""
    told = 'headsweep() { printf "%s\\0" "$@" "a command\'s end"; }\n'
    script = folder / "script.sh"
    script.write_text(told + "\n".join(commands), encoding="utf-8")
    said = subprocess.check_output(["bash", script], cwd=folder, text=True)
    script.unlink()
    *ended, _ = said.split("a command's end\0")
    return [each.split("\0")[:-1] for each in ended]


def names_in(command):
    return re.findall(r"wildcards\.(\w+)", command)


def test_every_job_has_its_rule_and_they_stand_in_the_order_of_the_workflow():
    names = [shlex.split(command)[:3] for command in COMMANDS]
    assert list(dict.fromkeys(map(tuple, names))) == [("headsweep", "job", j.name) for j in JOBS]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.split()[2])
def test_a_rule_gives_its_job_every_argument_as_one_word(command, tmp_path):
    (job,) = (job for job in JOBS if job.name == command.split()[2])
    words, text = words_of(
        command,
        wildcards=Wildcards(fromdict={name: name + WILDCARD + ALL for name in names_in(command)}),
        params=SimpleNamespace(folder="p" + WILDCARD + ALL, sweep="w" + ALL),
        resources=SimpleNamespace(engine_cores=3),
        log="results/" + WILDCARD + ALL,
    )
    assert shlex.split(text) == words
    assert in_a_shell(tmp_path, [text]) == [words[1:]]
    assert not list(tmp_path.iterdir())
    given = vars(parser().parse_args([*words[1:], "--config", "c"]))
    options = {f"--{name}": str(given[name]) for name in ("log", *job.options)}
    assert options == dict(zip(words[3::2], words[4::2], strict=True))


def changed(value, extra, place=()):
    """Yield copies of a config in which one string, a value or a key, has something more."""
    if isinstance(value, str):
        yield (*place, "value"), value + extra
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            for where, other in changed(inner, extra, place):
                yield where, [*value[:number], other, *value[number + 1 :]]
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield (
                (*place, "key"),
                {key + extra if key == name else key: value[key] for key in value},
            )
            for where, other in changed(inner, extra, (*place, name)):
                yield where, {**value, name: other}


def check_patterns(rules):
    """Every value of a wildcard is itself in a path, and found in a path as itself."""
    for wildcard, values in rules._lookup.values.items():
        pattern = regex_from_filepattern(f"a/{{{wildcard},{rules.constraints[wildcard]}}}.b")
        for value in values:
            path = f"a/{value}.b"
            assert apply_wildcards(path, {}) == path
            found = re.match(pattern, path)
            assert found and found[wildcard] == value, value


def planned(rules):
    """Yield the words and the text of each rule's command, for each value of each wildcard."""
    known = {**rules._lookup.values, "seed": ["0"], "variant": ["base"]}
    for command in COMMANDS:
        names = names_in(command)
        for number in range(max((len(known[name]) for name in names), default=1)):
            if not all(known[name] for name in names):
                continue
            values = {name: known[name][number % len(known[name])] for name in names}
            yield words_of(
                command,
                wildcards=Wildcards(fromdict=values),
                params=SimpleNamespace(folder="config/published", sweep="x"),
                resources=SimpleNamespace(engine_cores=2),
                log=rules.log("/".join(values.values())),
            )


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    """The shipped configs' values, small ones first, in a folder that has their data. `paper.yaml`
    is left out: it is two others, as a test holds.
    """
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder := tmp_path_factory.mktemp("shipped"))
        for file in sorted(SHIPPED, key=lambda file: file.stat().st_size):
            if file.stem == "paper":
                continue
            found.append(yaml.safe_load(file.read_text(encoding="utf-8")))
            put_data(parse(found[-1]), folder)
        yield found


def hostile(shipped, extra):
    """Yield the configs that are accepted with something more in a string: in the first of each
    kind, or at night, if it is ALL, in any.
    """
    kinds = set()
    for values in shipped:
        for place, other in changed(values, extra):
            kind = (*place[:1], *place[2:])  # without the name of an entry
            if kind in kinds and not (extra == ALL and NIGHTLY):
                continue
            kinds.add(kind)
            try:
                yield resolve(parse(other))
            except HeadsweepError as error:
                assert "\n" not in str(error), (place, extra)


EXTRAS = [*HOSTILE, WILDCARD, ALL] if NIGHTLY else [" x", "..", WILDCARD, ALL]


@pytest.mark.parametrize("extra", EXTRAS)
def test_what_a_config_says_is_refused_or_stays_a_word(shipped, extra):
    seen, commands = set(), {}
    for config in hostile(shipped, extra):
        rules = Rules(Store(config), 2, {})
        if (known := repr(rules._lookup.values)) not in seen:
            seen.add(known)
            check_patterns(rules)
            commands |= {text: words for words, text in planned(rules)}
    for text, words in commands.items():
        assert shlex.split(text) == words
    assert in_a_shell(Path(), commands) == [words[1:] for words in commands.values()]
    assert not Path("PWNED").exists()
