"""README's account of the demo and its pictures, from a finished demo.

``make readme`` writes both anew from results/demo.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
GALLERY = ROOT / "results/gallery"
BEGIN = "<!-- From the demo's tables, by `make readme`. -->\n"
END = "<!-- End of the demo's account. -->\n"

SHOWN = {
    "SPRINT": "SPRINT (mean over three seeds)",
    "nearest questions": "nearest training questions (no contrastive learning)",
    "greedy cover": "greedy cover (the same heads for every question)",
    "random heads": "random heads of a shortlist (16 are chosen on training questions)",
    "sampling T=0.1": "sampling, T = 0.1",
    "sampling T=0.9": "sampling, T = 0.9",
    "all heads (oracle)": "all 24 heads (oracle)",
}


def account(run: Path) -> str:
    """Return what README says of a finished demo, as Markdown.

    Args:
        run: the run's folder, results/demo.
    """
    return "\n\n".join(
        [
            _heads(pd.read_csv(run / "controls/math/heads.csv")),
            _curves(pd.read_parquet(run / "sprint/math/pass_at_n.parquet")),
            " ".join([*_selector(run / "sprint/math"), *_compression(run / "tables")]),
        ]
    )


def numbers(text: str) -> list[float]:
    """Return the numbers of an account, in order; names such as Pass@8 and L02H00 hold none."""
    return [float(number) for number in re.findall(r"(?<![\w@.])\d+(?:\.\d+)?(?![\w])", text)]


def stated() -> str:
    """Return the account that README has."""
    return README.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].strip()


def write(run: Path) -> None:
    """Put the account of a run and its pictures in the place of those that are there."""
    before, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    README.write_text(f"{before}{BEGIN}{account(run)}\n{END}{rest.partition(END)[2]}")
    for picture in GALLERY.glob("*.png"):
        if picture.name != "report.png":
            shutil.copy(run / "figures" / picture.name, picture)
    if browser := shutil.which("chromium") or shutil.which("google-chrome"):
        options = ["--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1280,840"]
        picture, page = GALLERY / "report.png", (run / "report.html").resolve().as_uri()
        subprocess.run(
            [browser, *options, f"--screenshot={picture}", page],
            check=True,
            stderr=subprocess.DEVNULL,
        )


def _heads(table: pd.DataFrame) -> str:
    base, heads = table.iloc[0], table.iloc[1:]
    best, worst = (heads[heads["accuracy"] == of] for of in _ends(heads["accuracy"]))
    shown = heads[heads["q"] < 0.05]
    hurt, helped = (shown["gain"] < 0).sum(), (shown["gain"] > 0).sum()
    return (
        f"Of {base['n']} MATH-like test questions the base model answers {_percent(base)}%. The "
        f"best of {len(heads)} heads to lose: {', '.join(best['variant'])} "
        f"({_percent(best.iloc[0])}%); the worst: {', '.join(worst['variant'])} "
        f"({_percent(worst.iloc[0])}%). {hurt} heads are shown to hurt when they go, "
        f"{helped or 'none'} to help (exact McNemar tests, Benjamini-Hochberg). Pass@N in percent:"
    )


def _ends(values: pd.Series) -> tuple[float, float]:
    return values.max(), values.min()


def _curves(table: pd.DataFrame) -> str:
    wide = table.pivot(index="method", columns="n", values="pass_at_n")[[1, 2, 4, 8]] * 100
    rows = [
        f"| {words} | {' | '.join(f'{value:.1f}' for value in wide.loc[method])} |"
        for method, words in SHOWN.items()
    ]
    return "\n".join(["| method | N = 1 | 2 | 4 | 8 |", "| --- | --: | --: | --: | --: |", *rows])


def _selector(folder: Path) -> Iterator[str]:
    weighed = pd.read_csv(folder / "embedding.csv").query(
        "method == 'SPRINT' and questions == 'test' and heads == 24 and n == 'mean' and "
        "against == 'shuffled questions'"
    )
    (row,) = weighed.itertuples()
    effect = "no effect is shown" if row.low <= 0 <= row.high else "an effect is shown"
    yield (
        "Ranking heads by the question's own embedding in place of another question's changes the "
        f"mean of Pass@N by {_points(row.difference)} points ({_points(row.low)} to "
        f"{_points(row.high)}): {effect}."
    )
    (vote,) = (
        pd.read_csv(folder / "choosing.csv")
        .query("method == 'SPRINT' and rule == 'majority' and n == 8")
        .itertuples()
    )
    (more,) = (
        pd.read_csv(folder / "votes.csv").query("method == 'base greedy' and n == 8").itertuples()
    )
    yield (
        f"Where nobody knows the right answer, the majority of the 8 nearest heads answers "
        f"{100 * vote.accuracy:.1f}%, {_points(more.difference)} points beside the base model's "
        f"own answer ({_points(more.low)} to {_points(more.high)})."
    )


def _compression(folder: Path) -> Iterator[str]:
    knee = pd.read_csv(folder / "compression_knee.csv").query("subject == 'reasoner'")
    for row in knee.query("arm == 'full'").itertuples():
        yield (
            f"Without {row.heads_removed} of {row.heads} heads, those that its answers to "
            f"training questions miss least, and taught by itself, the reasoner answers "
            f"{100 * row.accuracy:.1f}% ({_points(row.change)} points, {_points(row.change_low)} "
            f"to {_points(row.change_high)})."
        )


def _percent(row: pd.Series) -> str:
    return f"{100 * row['accuracy']:.1f}"


def _points(value: float) -> str:
    return f"{100 * value:+.1f}".replace("-", "−")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
