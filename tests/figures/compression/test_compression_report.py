import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
import simulated_trials
from simulation import PUBLISHED

from headroom import paths
from headroom.analysis import jobs
from headroom.analysis.compression.exhibits import COLUMNS
from headroom.analysis.compression.trial import BASELINE, read_trial
from headroom.errors import TableError
from headroom.figures import draw
from headroom.record import Stopwatch, write_record
from headroom.report.page import write_report
from headroom.report.provenance import provenance
from headroom.tables import write_json

HOSTILE = "</p><script>alert(1)</script><img src=x onerror=alert(2)> {{ 7*7 }} | **b**"


class Elements(HTMLParser):
    """Collects the elements of a page and their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def elements(html):
    parser = Elements()
    parser.feed(html)
    return parser.found


@pytest.fixture
def html(compressed):
    return (compressed[0] / "results/compressed/report.html").read_text(encoding="utf-8")


def test_the_page_of_a_run_without_sweeps_starts_with_what_compression_cost(html):
    sections = re.findall(r"<section id=\"(\w+)\"", html)
    assert sections == ["findings", "compression", "published", "making"]
    assert "Removing 6 of 24 heads of tiny on asdiv_a changes accuracy by" in html
    assert "Selection alone raises" not in html
    assert html.index("Recursion (the teacher") < html.index("Ratios (Table 1)")


def test_the_page_has_every_table_figure_and_warning(html):
    found = elements(html)
    images = [attributes for tag, attributes in found if tag == "img"]
    assert len(images) == 3  # of the compression and of the audit
    assert all(len(attributes["alt"] or "") > 40 for attributes in images)
    for title in ("Table 1", "Table 2", "Table 3a", "Table 3b", "Table 4", "accuracy breaks"):
        assert title in html
    assert "the loss rose in round 2" in html
    assert "one seed, so that intervals are about it" in html
    ids = {attributes["id"] for _, attributes in found if "id" in attributes}
    links = [attributes["href"] for tag, attributes in found if tag == "a"]
    assert all(link[1:] in ids for link in links)


def test_tables_of_a_run_are_in_one_record(compressed):
    folder = compressed[0] / "results/compressed/tables"
    assert {file.name for file in folder.glob("compression_*.csv")} == {
        f"compression_{name}.csv" for name in COLUMNS
    }
    (record,) = folder.glob("compression_*.run.json")
    facts = json.loads(record.read_text(encoding="utf-8"))
    assert len(facts["files"]) == 3 * len(COLUMNS)
    assert len(facts["sources"]) == 6


def test_hostile_text_stays_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = simulated_trials.study(arms=["baseline", "full"], variations={}, seeds=[1], int8=[])
    trial = simulated_trials.trial(own, examples=33)
    trial.outcomes["stratum"] = HOSTILE
    trial.histories["full"][1]["warnings"] = [HOSTILE]
    config = simulated_trials.config(asdiv=own)
    simulated_trials.fill(config, [trial])
    jobs.write_compression_tables(config, PUBLISHED)
    draw.draw_audit(config, PUBLISHED)
    write_report(config)
    html = (tmp_path / "results/compressed/report.html").read_text(encoding="utf-8")
    found = elements(html)
    assert [tag for tag, _ in found].count("script") == 1
    assert not [attributes for _, attributes in found if "onerror" in attributes]
    assert html.count("&lt;script&gt;alert(1)") >= 2  # the stratum, and the warning
    assert "{{ 7*7 }}" in html


def test_trials_are_read_as_they_were_written(compressed, monkeypatch):
    monkeypatch.chdir(compressed[0])
    trial = read_trial(compressed[1], "asdiv")
    wanted = simulated_trials.trial()
    pd.testing.assert_frame_equal(
        trial.right(BASELINE), wanted.right(BASELINE), check_index_type=False
    )
    assert trial.histories == wanted.histories
    assert trial.encoder == simulated_trials.ENCODER
    assert (trial.papers_data, trial.papers_model) == ("ASDiv-A", None)


def test_provenance_adds_up_the_jobs_of_compressions(compressed, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    config = compressed[1]
    stage = Path(paths.MEASUREMENTS.format(run=config.run, compression="asdiv"))
    write_json(stage, {})
    write_record(stage, Stopwatch(), {})
    made = provenance(config)
    assert [row[:2] for row in made["Time"].rows] == [("measurement", "1")]
    revisions = made["Models and data"].rows
    assert ("problems", "asdiv_a", "asdiv_a.jsonl", "none") in revisions
    assert ("solver", "tiny", "trained here", "none") in revisions


def test_damaged_and_missing_histories_are_refused(compressed, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    config = compressed[1]
    trial = simulated_trials.trial(config.compressions["lone"], name="lone", examples=7)
    simulated_trials.fill(config, [trial])
    file = Path(paths.HISTORIES.format(run=config.run, compression="lone"))
    file.write_text("{", encoding="utf-8")
    with pytest.raises(TableError, match=r"histories.json cannot be read"):
        read_trial(config, "lone")
    file.unlink()
    with pytest.raises(TableError, match=r"histories.json is missing"):
        read_trial(config, "lone")
