from pathlib import Path

from headsweep.cli.reference import captions, page

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "config" / "reference.md"


def test_the_reference_is_current():
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make reference`"


def test_the_captions_in_snakemake_s_report_are_those_of_the_figures():
    for file, text in captions(ROOT / "workflow" / "report").items():
        assert file.read_text(encoding="utf-8") == text, "run `make reference`"
