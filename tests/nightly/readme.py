"""README's accounts of the demo and of the real model's runs, and the gallery's pictures.

``make readme`` writes them anew from results/demo and from what ``make real`` remade.
"""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

import headroom

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
GALLERY = ROOT / "results/gallery"

_METHODS = {
    "SPRINT": "SPRINT (mean over {seeds} seeds)",
    "nearest questions": "nearest training questions (no contrastive learning)",
    "greedy cover": "greedy cover (the same heads for every question)",
    "random heads": "random heads of a shortlist",
    "sampling T=0.1": "sampling, T = 0.1",
    "sampling T=0.6": "sampling, T = 0.6",
    "sampling T=0.9": "sampling, T = 0.9",
    "all heads (oracle)": "all {heads} heads (oracle)",
}


@dataclass(frozen=True)
class Account:
    """What README says of a finished run, between two comments."""

    name: str  # of the run in the comments
    folder: str  # of the gallery
    of: str  # the sweep and selector, which have one name
    questions: str
    model: str
    sizes: tuple[int, ...]  # the columns of Pass@N
    compression: str | None = None  # the model whose compression is told of

    def text(self, run):
        """Return the account of a run's folder, as Markdown."""
        if not (run / "sprint").exists():
            return "\n\n".join(self._families(run))
        heads = pd.read_csv(run / f"controls/{self.of}/heads.csv")
        curves = pd.read_parquet(run / f"sprint/{self.of}/pass_at_n.parquet")
        told = list(_selector(run / f"sprint/{self.of}", max(self.sizes)))
        if (run / "frontier").exists():
            told += _families(run)
        if self.compression:
            told += _compression(run / "tables", self.compression)
        z = headroom.load(run).z(self.of)
        return "\n\n".join([self._heads(heads, z), self._curves(curves, heads), " ".join(told)])

    def stated(self, instead=None):
        """Return what README has of it; put the account of a run in its place, if one is given."""
        begin = f"<!-- From the {self.name}'s tables, by `make readme`. -->\n"
        end = f"<!-- End of the {self.name}'s account. -->\n"
        before, _, rest = README.read_text(encoding="utf-8").partition(begin)
        stated, _, after = rest.partition(end)
        if instead:
            README.write_text(f"{before}{begin}{self.text(instead)}\n{end}{after}")
        return stated.strip()

    def _heads(self, table, z):
        base, heads = table.iloc[0], table.iloc[1:]
        ends = heads["accuracy"].agg(["max", "min"])
        best, worst = (heads[heads["accuracy"] == end] for end in ends)
        shown = heads[heads["q"] < 0.05]
        hurt, helped = (shown["gain"] < 0).sum(), (shown["gain"] > 0).sum()
        noise = z.filter(regex=r"^L\d+N").mean()
        low, high = 100 * noise.min(), 100 * noise.max()
        beside = f"; with noise of the same norm in a head's place it is {low:.1f} to {high:.1f}%"
        return (
            f"Of {base['n']} {self.questions} {self.model} answers {_percent(base)}%. The best of "
            f"{len(heads)} heads to lose: {_named(best)}; the worst: {_named(worst)}{beside}. "
            f"{hurt or 'None'} {'is' if hurt < 2 else 'are'} shown to hurt when they go, "
            f"{helped or 'none'} to help (exact McNemar tests, Benjamini-Hochberg). Pass@N in "
            "percent:"
        )

    def _curves(self, table, heads):
        sizes = list(self.sizes)
        wide = table.pivot(index="method", columns="n", values="pass_at_n")[sizes] * 100
        count = heads["variant"].str.contains("H").sum()
        rows = [
            f"| {words.format(heads=count, seeds='three')} | "
            f"{' | '.join(f'{value:.1f}' for value in wide.loc[method])} |"
            for method, words in _METHODS.items()
            if method in wide.index
        ]
        titles = f"| method | N = {' | '.join(map(str, sizes))} |"
        return "\n".join([titles, f"| --- |{' --: |' * len(sizes)}", *rows])

    def _families(self, run):
        (folder,) = (run / "frontier").iterdir()
        families = pd.read_csv(folder / "families.csv", index_col="family")
        curves = pd.read_csv(folder / "curves.csv").query("order == 'ordered'")
        wide = curves.pivot(index="family", columns="n", values="pass")[list(self.sizes)] * 100
        facts = json.loads((folder / "families.csv.run.json").read_text(encoding="utf-8"))
        yield (
            f"{self.model} answers {100 * facts['base_accuracy']:.1f}% of {facts['questions']} "
            f"{self.questions}, with {facts['base_tokens']:.0f} tokens each. Of each family: "
            "tokens generated and computed (prompts too) for an answer; how often, in percent, it "
            "gives none, a member is right alone, and one of the first N:"
        )
        rows = [
            f"| {one.title} | {one.tokens:.0f} | {one.computed:.0f} | {100 * one.no_answer:.1f} | "
            f"{100 * one.accuracy:.1f} | "
            f"{' | '.join(f'{value:.1f}' for value in wide.loc[one.Index])} |"
            for one in families.itertuples()
        ]
        columns = ["family", "tokens an answer", "computed", "no answer", "right"]
        columns += ["N = 1", *map(str, self.sizes[1:])]
        titles = f"| {' | '.join(columns)} |"
        yield "\n".join([titles, f"| --- |{' --: |' * (len(columns) - 1)}", *rows])
        yield " ".join(_families(run))


DEMO = Account(
    *("demo", "", "math", "MATH-like test questions", "the base model"),
    sizes=(1, 2, 4, 8),
    compression="reasoner",
)
REAL = Account(
    *("real model", "qwen2.5-coder-0.5b", "asdiv"),
    *("ASDiv-A word problems", "Qwen2.5-Coder-0.5B-Instruct"),
    sizes=(1, 2, 3, 4),
)
FAMILIES = replace(REAL, name="frontier", folder=f"{REAL.folder}-families", sizes=(1, 2, 4, 8))


def numbers(text):
    """Return the numbers of an account, in order; names such as Pass@8 and L02H00 hold none."""
    return [float(number) for number in re.findall(r"(?<![\w@.])\d+(?:\.\d+)?(?![\w])", text)]


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


def _named(heads):
    first = heads.iloc[0]
    change = f"{_points(first['gain'])} points, {_points(first['low'])} to {_points(first['high'])}"
    least = f"q = {heads['q'].min():.2f}" if heads["q"].min() >= 0.05 else "q < 0.05"
    return f"{', '.join(heads['variant'])} ({_percent(first)}%; {change}; {least})"


def _selector(folder, size):
    (row,) = _rows(
        folder / "embedding.csv",
        "method == 'SPRINT' and n == 'mean' and against == 'shuffled questions'",
    )
    effect = "no effect is shown" if row.low <= 0 <= row.high else "an effect is shown"
    yield (
        "Ranking heads by the question's own embedding in place of another question's changes the "
        f"mean of Pass@N by {_points(row.difference)} points ({_points(row.low)} to "
        f"{_points(row.high)}): {effect}."
    )
    wanted = f"method == 'SPRINT' and rule == 'majority' and n == {size}"
    (vote,) = _rows(folder / "choosing.csv", wanted)
    (more,) = _rows(folder / "votes.csv", f"method == 'base greedy' and n == {size}")
    yield (
        f"Where nobody knows the right answer, the majority of the {size} nearest heads answers "
        f"{100 * vote.accuracy:.1f}%, {_points(more.difference)} points beside the base model's "
        f"own answer ({_points(more.low)} to {_points(more.high)})."
    )


def _families(run):
    (folder,) = (run / "frontier").iterdir()
    config = headroom.load(run).config
    title = config.questions[config.frontiers[folder.name].test].title
    paired = pd.read_csv(folder / "paired.csv").query("order == 'ordered'")
    tested = paired.dropna(subset="adjusted").set_index("outcome")
    against = tested.query("versus == 'sampling'")
    (vote,) = against.loc[["majority"]].query("family == 'head'").itertuples()
    (heads,) = against.loc[["pass"]].query("family == 'head'").itertuples()
    solved = against.loc[["pass"]].itertuples()
    solved = [f"{row.family_title} {100 * row.value:.1f}" for row in solved]
    others = tested.loc[["pass"]].query("family == 'head' and versus != 'sampling'")
    won = others.query("adjusted < 0.05 and difference > 0")["versus_title"]
    yield (
        f"Any cheap change gives other answers: with the tokens of {heads.budget} of them, of "
        f"{heads.n} {title} questions {', '.join(solved)} and sampling {100 * heads.other:.1f}% "
        f"are solved (heads minus sampling {_points(heads.difference)}, {_points(heads.low)} to "
        f"{_points(heads.high)}, p = {heads.adjusted:.2f} after Holm; heads are shown to beat "
        f"{', '.join(won) or 'no other family'}). By vote heads reach {100 * vote.value:.1f} and "
        f"samples {100 * vote.other:.1f}% ({_points(vote.difference)}, {_points(vote.low)} to "
        f"{_points(vote.high)})."
    )


def _compression(folder, model):
    wanted = f"subject == '{model}' and arm == 'full'"
    for row in _rows(folder / "compression_knee.csv", wanted):
        yield (
            f"Without {row.heads_removed} of {row.heads} heads, those that its answers to "
            f"training questions miss least, and taught by itself, the reasoner answers "
            f"{100 * row.accuracy:.1f}% ({_points(row.change)} points, {_points(row.change_low)} "
            f"to {_points(row.change_high)})."
        )


def _rows(file, wanted):
    return [*pd.read_csv(file).query(wanted).itertuples()]


def _percent(row):
    return f"{100 * row['accuracy']:.1f}"


def _points(value):
    return f"{100 * value:+.1f}".replace("-", "−")


if __name__ == "__main__":
    for told, run in zip((DEMO, REAL, FAMILIES), sys.argv[1:], strict=False):
        told.stated(instead=Path(run))
        pictures(told, Path(run))
