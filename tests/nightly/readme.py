"""The accounts of the demo and of real models' runs in docs/, and the gallery's pictures.

``make readme`` writes them anew from results/demo and from what ``make real`` remade: the findings
of a run, and its Pass@N, its families, what is right by subject, or what a map foretells.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pandas as pd

import headsweep
from headsweep.experiments.sprint.validation import likeness

ROOT = Path(__file__).parents[2]
GALLERY = ROOT / "results/gallery"

_METHODS = ["SPRINT", "nearest questions", "greedy cover", "random heads", "base greedy"]
_METHODS += ["sampling T=0.1", "sampling T=0.6", "sampling T=0.9", "all heads (oracle)"]
_FAMILIES = {"tokens": "tokens an answer", "computed": "computed"}
_FAMILIES |= {"no_answer": "no answer", "accuracy": "right"}


class Account(NamedTuple):
    """What a page says of a finished run, between two comments."""

    name: str  # of the run in the comments
    page: str  # in docs/
    folder: str  # of the gallery
    # Names in the run's config; each that is given has a table in the account.
    sweep: str = ""
    selector: str = ""
    frontier: str = ""
    map: str = ""
    sizes: tuple[int, ...] = ()  # the columns of Pass@N

    def text(self, run):
        """Return the account of a run's folder, as Markdown."""
        found = headsweep.load(run).findings
        if self.folder:  # the papers' own gains are the same in every run
            found = [line for line in found if not line.startswith("Published")]
        if self.selector:
            alike = pd.read_csv(run / f"sprint/{self.selector}/overlap.csv")
            found = [*found, likeness(alike)]
        told = "\n".join(f"- {line}" for line in found)
        tables = [t.to_markdown(floatfmt=".1f", missingval="–") for t in self.tables(run)]
        return "\n\n".join([told, *tables])

    def tables(self, run):
        """Yield the account's tables, from a run's folder."""
        if self.sweep:
            yield by_subject(run, self.sweep)
        if self.selector:
            yield pass_at_n(run, self.selector, self.sizes)
        if self.frontier:
            yield of_families(run, self.frontier, self.sizes)
        if self.map:
            yield foretold(run, self.map)

    def stated(self, instead=None):
        """Return what its page has of it; put a run's account in its place, if one is given."""
        page = ROOT / "docs" / self.page
        begin = f"<!-- From the {self.name}'s tables, by `make readme`. -->\n"
        end = f"<!-- End of the {self.name}'s account. -->\n"
        before, _, rest = page.read_text(encoding="utf-8").partition(begin)
        stated, _, after = rest.partition(end)
        if instead:
            page.write_text(f"{before}{begin}{self.text(instead)}\n{end}{after}", encoding="utf-8")
        return stated.strip()


def pass_at_n(run, selector, sizes):
    """Return how many percent of the questions are solved by any of N answers, by method."""
    curves = pd.read_parquet(run / f"sprint/{selector}/pass_at_n.parquet")
    wide = curves.pivot(index="method", columns="n", values="pass_at_n")[[*sizes]]
    return 100 * wide.reindex(_METHODS).dropna().rename_axis("Pass@N, %")


def of_families(run, frontier, sizes):
    """Return what a frontier's families cost, and what percent any of N members solves."""
    folder = run / f"frontier/{frontier}"
    families = pd.read_csv(folder / "families.csv", index_col="family")
    curves = pd.read_csv(folder / "curves.csv").query("order == 'ordered'")
    shares = 100 * curves.pivot(index="family", columns="n", values="pass")[[*sizes]]
    families[["no_answer", "accuracy"]] *= 100
    table = families.join(shares).set_index("title").rename_axis("family")
    return table[[*_FAMILIES, *sizes]].rename(columns=_FAMILIES)


def foretold(run, map_name):
    """Return how well a map ranks the gains that a sweep measured."""
    table = pd.read_csv(run / f"maps/{map_name}/foretold.csv")
    (top,) = table["top"].unique()
    table[["best_found", "best_gain"]] *= 100
    called = {"correlation": "ρ", "low": "low", "high": "high"}
    called |= {"best_hits": f"of the {top} best", "worst_hits": f"of the {top} worst"}
    called |= {"by_chance": "by chance", "best_found": "gain found", "best_gain": "largest gain"}
    return table.set_index("outcome")[[*called]].rename(columns=called).rename_axis("ranks gains")


def by_subject(run, sweep):
    """Return how many percent are right: of the whole model, a head less, with noise, as printed.

    The printed ones are those of the layer in the paper's table of the model that stands beside;
    one head of another model is no measure of this one's, so a sweep of one head has none of heads.
    """
    z = headsweep.load(run).z(sweep).drop(columns=["question_id", "level"])
    right = 100 * z.groupby("subject").mean()
    right.loc["Overall"] = 100 * z.drop(columns="subject").mean()
    cells = pd.read_csv(run / f"tables/{sweep}.csv")
    cells = cells[cells["by"].isin(["overall", "subject"])]
    printed = 100 * cells.pivot(index="group", columns="variant", values="published")
    columns = {"questions": z["subject"].value_counts(), "whole": right["base"]}
    columns["questions"]["Overall"] = len(z)
    heads, noise = right.filter(regex="H"), right.filter(regex="N")
    if len(heads.columns) == 1:
        columns[f"without {heads.columns[0]}"] = heads.squeeze(axis=1)
    else:
        kinds = {"a head less": heads, "noise": noise}
        kinds["printed, a head less"] = printed.filter(regex="H")
        for kind, shares in kinds.items():
            columns[f"{kind}, least"] = shares.min(axis=1)
            columns[f"{kind}, most"] = shares.max(axis=1)
    columns["printed, whole"] = printed["base"]
    table = pd.DataFrame(columns).reindex(right.index).rename_axis("right, %")
    return table.astype({"questions": int}).astype(object).where(table.notna(), None)


MATH = Account(
    "MATH-500 run",
    "math-500.md",
    "qwen2.5-coder-1.5b-math500",
    sweep="primary",
    selector="math",
    sizes=(1, 2, 4),
)
DEMO = Account("demo", "demo.md", "", selector="math", sizes=(1, 2, 4, 8))
REAL = Account(
    "real model", "word-problems.md", "qwen2.5-coder-0.5b", selector="asdiv", sizes=(1, 2, 3, 4)
)
FAMILIES = Account(
    "frontier", "families.md", f"{REAL.folder}-families", frontier="asdiv", sizes=(1, 2, 4, 8)
)
MAP = Account("map", "map.md", f"{REAL.folder}-map", map="asdiv")


def pictures(of, run):
    """Copy a run's figures over those of the same names, and photograph its page."""
    folder = GALLERY / of.folder
    for picture in folder.glob("*.png"):
        if picture.name != "report.png":
            shutil.copy(run / "figures" / picture.name, picture)
    if browser := shutil.which("chromium") or shutil.which("google-chrome"):
        options = ["--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1280,840"]
        page = (run / "report.html").resolve().as_uri()
        command = [browser, *options, f"--screenshot={folder / 'report.png'}", page]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    for told, run in zip((DEMO, MATH, REAL, FAMILIES, MAP), sys.argv[1:], strict=False):
        told.stated(instead=Path(run))
        pictures(told, Path(run))
