"""Two hosts on one store: what one answers, or has answered, the other does not answer again."""

import os
import signal
import socket
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

import forked
import inline
from batch_of import batch_of
from comparing import check, same_answers
from headsweep.answers import client, schedule
from headsweep.answers.work import Work
from headsweep.config import Sweep
from headsweep.errors import EngineError
from headsweep.files import paths
from headsweep.files.locks import Locks
from headsweep.files.safe_files import read_table
from headsweep.files.tables import ANSWERS
from headsweep.machine import fork_server
from headsweep.store import batches, journal
from headsweep.store.layout import Store, write_config
from hosts import Host
from processes import wait_until

pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of forking

_APPEND = journal.append
QUESTIONS = 7
GROUP = 5


@pytest.fixture
def planned(run_config, monkeypatch):
    """A config of the base and 24 heads, which are answered in groups of five."""
    monkeypatch.setattr(schedule, "UNIT_VARIANTS", GROUP)
    monkeypatch.setattr(fork_server, "ask", forked.ask)
    monkeypatch.setattr(journal, "append", append)
    sweep = Sweep(model="tiny", questions="large", layers="all")
    return run_config.model_copy(update={"sweeps": {"all": sweep}})


@pytest.fixture
def start_host():
    """Return what starts a host, which ends with the test, where this user may make namespaces."""
    if Host("try", lambda: None).wait():
        pytest.skip("namespaces: this user may not make any, see `man unshare`")
    with ExitStack() as started:

        def start(*arguments, **variables):
            host = Host(*arguments, **variables)
            started.callback(host.power_off)
            return host

        yield start


def append(path, records):
    """Journal an answer and count it; at the host's n-th, do what its environment says."""
    _APPEND(path, records)
    (record,) = records
    file, host = journal.written_here(path), socket.gethostname()
    writer = file.name.removeprefix(path.stem)
    with Path("counted").open("a") as stream:
        print(host, os.getpid(), writer, path.stem, record["question_id"], file=stream)
    count = len(counted(host))
    if count == int(os.environ.get("PAUSES_AT", "0")):
        signal.pause()
    if count == int(os.environ.get("CUT_AT", "0")):
        os.truncate(file, file.stat().st_size - 5)
        os.kill(os.getpid(), signal.SIGKILL)


def counted(host=""):
    """Return what was journaled by a host, or all: host, process, writer, variant, question."""
    file = Path("counted")
    lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
    return [tuple(words) for words in lines if words[0].startswith(host)]


def answers(record):
    return record[3:]


def work_on(config):
    return Work(batch_of(config, "tiny", "greedy", "large"))


def ask(config, variants):
    """Do the jobs of a run one after the other; what fails is tried again once."""
    write_config(Store(config))
    for variant in variants:
        try:
            client.run(batch_of(config, "tiny", "greedy", "large"), variant)
        except EngineError:
            client.run(batch_of(config, "tiny", "greedy", "large"), variant)


def test_hosts_share_a_batch_and_one_goes_on_where_another_was_cut_off(planned, start_host):
    variants = next(iter(batches.batches(Store(planned)).values())).variants
    total = len(variants) * QUESTIONS
    first = start_host("first", ask, planned, variants, PAUSES_AT="12")
    wait_until(lambda: len(counted("first")) == 12)
    others = total - GROUP * QUESTIONS
    second = start_host("second", ask, planned, variants[::-1], CUT_AT=str(others + 9))
    wait_until(lambda: len(counted("second")) >= others)
    taken = {variant for *_, variant, _ in counted("first")}
    assert taken <= {str(variant) for variant in variants[:GROUP]}
    assert not taken & {variant for *_, variant, _ in counted("second")}

    first.power_off()
    assert second.wait() == 0
    copies = Counter(map(answers, counted()))
    assert len(copies) == total
    assert copies.total() == total + 1  # the record that was cut
    engines = {record[:3] for record in counted()}
    assert len(engines) == 3  # one was killed by the cut
    assert len({writer for *_, writer in engines}) == 3

    files = [work_on(planned).output(variant) for variant in variants]
    made = [read_table(file, ANSWERS) for file in files]
    assert [len(table) for table in made] == len(variants) * [QUESTIONS]
    assert not list(Path(paths.RESULTS).rglob("*.jsonl"))
    compared = Counter()
    for place in (0, 3, 24):
        files[place].unlink()
        work_on(planned).finished(variants[place]).unlink()
        inline.run(planned, "tiny", "greedy", "large", variants[place])
        assert same_answers(made[place], read_table(files[place], ANSWERS), compared)
    check(compared)


def test_where_locks_do_not_reach_other_hosts_each_answers_its_own_groups(
    planned, start_host, monkeypatch
):
    monkeypatch.setattr(Locks, "take", lambda *_: True)
    monkeypatch.setattr(batches, "GROUP", 4)
    sweep = planned.sweeps["all"].model_copy(update={"layers": (1,), "placebos": "numeric"})
    config = planned.model_copy(update={"sweeps": {"all": sweep}})
    (batch,) = batches.batches(Store(config)).values()
    groups = {}
    for variant, name in batch.groups.items():
        groups.setdefault(name, []).append(variant)
    assert {name: len(members) for name, members in groups.items()} == {
        "None": 4,
        "1": 4,
        "1.1": 2,
        "None.1": 3,
    }
    hosts = [
        start_host(f"host{number}", ask, config, members, SLURM_JOB_ID=str(number))
        for number, members in enumerate(groups.values())
    ]
    assert [host.wait() for host in hosts] == 4 * [0]
    copies = Counter(map(answers, counted()))
    assert copies == Counter(dict.fromkeys(copies, 1))
    assert len(copies) == len(batch.variants) * QUESTIONS
