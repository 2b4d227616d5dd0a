"""README's accounts recomputed from accuracy matrices and graded answers, without headsweep.

``python tests/nightly/recompute.py results/demo`` compares the demo's account. What stands in it
and is not recomputed here: ends of intervals and p-values (they come of bootstraps and
permutations), work in the column ``computed``, compressions, and the papers' published gains.
Rankings of heads, a shortlist's size and the order of a family's members are the run's own.
"""

import json
import re
import sys
from math import comb
from pathlib import Path

import pandas as pd
from scipy.optimize import brentq
from scipy.stats import binom, binomtest

HALF = 0.0501
"""Half of the last digit that an account prints, and a little for its own rounding."""
LEVEL, POWER = 0.05, 0.8


class Run:
    """A finished run's folder."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.config = json.loads((self.folder / "config.json").read_text())

    def table(self, kind, model, decoding, questions):
        """Return an accuracy matrix, or graded answers, by the config's names."""
        names = f"{kind}/{model}-*/{decoding}-*/{questions}-*.parquet"
        (file,) = self.folder.glob(names)
        return pd.read_parquet(file)

    def pool(self, section):
        """Return the names of a sweep's or selector's heads."""
        model = self.config["models"][section["model"]]
        layers, heads = (
            range(model[size]) if section[size] == "all" else section[size]
            for size in ("layers", "heads")
        )
        return [f"L{layer:02}H{head:02}" for layer in sorted(layers) for head in sorted(heads)]


def of_heads(run, sweep):
    """Return the numbers of the verdict on a sweep's heads, by what they are."""
    section = run.config["sweeps"][sweep]
    names = section["model"], section["decoding"], section["questions"]
    z = run.table("accuracy", *names).set_index("question_id")
    heads = run.pool(section)
    changes = z[heads].sub(z["base"], axis=0)
    gained, lost = (changes > 0).sum(), (changes < 0).sum()
    tested = pd.DataFrame({"gained": gained, "lost": lost, "gain": changes.mean()})
    tested["p"] = [
        binomtest(int(row.gained), int(row.gained + row.lost)).pvalue
        if row.gained + row.lost
        else 1
        for row in tested.itertuples()
    ]
    ranked = tested["p"].sort_values(ascending=False)
    places = range(len(ranked), 0, -1)  # Benjamini and Hochberg: the least of those above
    q = (ranked * len(ranked) / list(places)).cummin().clip(upper=1)
    shown = tested[q.reindex(tested.index) < LEVEL]
    helps = shown[shown["gain"] > 0]
    changed = (gained + lost) / len(z)
    least = [smallest_gain(len(z), share, len(heads)) for share in changed]
    return {
        "heads": len(heads),
        "best": 100 * (helps if len(helps) else tested)["gain"].max(),
        "questions": len(z),
        "hurt": (shown["gain"] < 0).sum(),
        "show": 100 * pd.Series(least).median(),
    }


def smallest_gain(questions, changed, tests):
    """Return the smallest gain that the exact test shows with probability `POWER`."""

    def lacking(gain):
        share, found = max(changed, gain), 0.0
        for many in range(questions + 1):
            chance = binom.pmf(many, questions, share)
            if chance < 1e-9:
                continue
            most = binom.ppf(LEVEL / 2 / tests, many, 0.5)
            while most >= 0 and binom.cdf(most, many, 0.5) > LEVEL / 2 / tests:
                most -= 1
            found += chance * binom.cdf(most, many, (share - gain) / share / 2)
        return found - POWER

    return brentq(lacking, 1e-6, 1, xtol=1e-4)


def cover(z):
    """Return heads by how many questions they add to those solved; ties by all they solve."""
    left, open_, order = list(z.columns), z.astype(bool), []
    while left:
        best = max(left, key=lambda head: (open_[head].sum(), z[head].sum()))
        open_ = open_[~open_[best]]
        order.append(best)
        left.remove(best)
    return order


def mean_drawn(right, total, n):
    """Return the mean chance that one of n drawn answers is right (Chen et al. 2021).

    `right` has, for each question, how many of the total are.
    """
    return sum(1 - comb(total - count, n) / comb(total, n) for count in right) / len(right)


def first_of(z, orders, n):
    """Return the share of questions that one of the first n heads solves, by question's order."""
    return sum(z.loc[question, order[:n]].any() for question, order in orders.items()) / len(z)


def pass_at_n(run, selector, sizes):
    """Return Pass@N in percent, by method and N."""
    section = run.config["selectors"][selector]
    model, decoding, test = section["model"], section["decoding"], section["test"]
    heads, folder = run.pool(section), run.folder / "sprint" / selector
    whole, known = (
        run.table("accuracy", model, decoding, questions).set_index("question_id")
        for questions in (test, section["train"])
    )
    z, learnt = whole[heads], known[heads]
    found = {"base greedy": dict.fromkeys(sizes, whole["base"].mean())}
    found["all heads (oracle)"] = dict.fromkeys(sizes, z.max(axis=1).mean())
    fixed = dict.fromkeys(z.index, cover(learnt))
    found["greedy cover"] = {n: first_of(z, fixed, n) for n in sizes}
    rankings = pd.read_parquet(folder / "trainings.parquet").query("training == 'all'")
    for method in ("SPRINT", "nearest questions"):
        of_seeds = [
            {row.question_id: [heads[each] for each in row.heads] for row in part.itertuples()}
            for _, part in rankings[rankings["method"] == method].groupby("seed")
        ]
        found[method] = {
            n: sum(first_of(z, orders, n) for orders in of_seeds) / len(of_seeds) for n in sizes
        }
    chosen = pd.read_csv(folder / "sensitivity.csv").query("chosen").iloc[0]
    by_accuracy = sorted(heads, key=lambda head: -learnt[head].sum())
    short = (cover(learnt) if chosen["criterion"] == "joint cover" else by_accuracy)[: chosen["k"]]
    right = z[short].sum(axis=1)
    most = len(short)
    found["random heads"] = {n: mean_drawn(right, most, min(n, most)) for n in sizes}
    for name in section["sampling"]:
        graded = run.table("graded", model, name, test).groupby("question_id")["correct"]
        right, total = graded.sum(), int(graded.size().iloc[0])
        temperature = run.config["decodings"][name]["temperature"]
        solved = {n: mean_drawn(right, total, n) for n in sizes}
        found[f"sampling T={temperature:g}"] = solved
    return {(method, n): 100 * value for method, own in found.items() for n, value in own.items()}


def families(run, frontier, sizes):
    """Return what an account says of a frontier's families, by title and column."""
    section = run.config["frontiers"][frontier]
    model, test = section["model"], section["test"]
    folder = run.folder / "frontier" / frontier
    members = pd.read_csv(folder / "members.csv")  # in the order that training questions chose
    titles = pd.read_csv(folder / "families.csv").set_index("family")["title"]
    found = {}
    for family, part in members.groupby("family", sort=False):
        if family == "sampling":
            decoding = part["member"].iloc[0].partition(",")[0]
            answers = run.table("graded", model, decoding, test)
            answers = answers[answers["sample"] < len(part)]
            right, total = answers.groupby("question_id")["correct"].sum(), len(part)
            solved = {n: mean_drawn(right, total, n) for n in sizes}
        else:
            answers = run.table("graded", model, section["decoding"], test)
            names = part.sort_values("rank")["member"].tolist()
            answers = answers[answers["variant"].isin(names)]
            z = answers.pivot(index="question_id", columns="variant", values="correct")
            solved = {n: z[names[:n]].any(axis=1).mean() for n in sizes}
        row = {"tokens an answer": answers["tokens"].mean()}
        row |= {"no answer": 100 * answers["answer"].isna().mean()}
        row |= {"right": 100 * answers["correct"].mean()}
        row |= {str(n): 100 * share for n, share in solved.items()}
        found |= {(titles[family], column): value for column, value in row.items()}
    return found


def numbers(text):
    """Return the numbers of a text; a minus sign may be typographic."""
    plain = text.replace("−", "-").replace(",", "")
    return [float(each) for each in re.findall(r"[+-]?\d+(?:\.\d+)?", plain)]


def told_of_heads(account, run, of):
    """Yield what an account says of a sweep's heads, what it states, and what the answers give."""
    wanted = of_heads(run, of)
    told = re.search(
        r"Best of (\d+): (\S+) \(.*?\) points, ([\d,]+) questions; (\d+) hurt", account
    )
    for name, number in zip(("heads", "best", "questions", "hurt"), told.groups(), strict=True):
        yield f"heads: {name}", numbers(number)[0], wanted[name]
    if show := re.search(r"Gains show from (\S+) points", account):
        yield "heads: gains show from", float(show[1]), wanted["show"]


def told_of_curves(account, run, of):
    """Yield the same of Pass@N and of SPRINT's lead over sampling."""
    title, rows = table_of(account)
    sizes = [int(number) for number in title[1:]]
    led = re.search(r"(\d+) answers, (T = [\d.]+).*?: (\S+) \(", account)
    most = int(led[1])
    solved = pass_at_n(run, of, sorted({*sizes, most}))
    for method, *cells in rows:
        for n, cell in zip(sizes, cells, strict=True):
            yield f"{method}, N = {n}", float(cell), solved[method, n]
    rival = f"sampling {led[2].replace(' ', '')}"
    lead = solved["SPRINT", most] - solved[rival, most]
    yield f"lead over {rival}", numbers(led[3])[0], lead


def told_of_families(account, run):
    """Yield the same of a frontier's families."""
    title, rows = table_of(account)
    ((frontier, _),) = run.config["frontiers"].items()
    found = families(run, frontier, [int(name) for name in title if name.isdigit()])
    for family, *cells in rows:
        for column, cell in zip(title[1:], cells, strict=True):
            if column != "computed":
                yield f"{family}, {column}", float(cell), found[family, column]


def table_of(account):
    """Return the cells of an account's table: its title and its rows."""
    lines = [line.strip("|").split("|") for line in account.splitlines() if line.startswith("|")]
    title, _, *rows = [[cell.strip() for cell in line] for line in lines]
    return title, rows


def compare(account, folder, of):
    """Return how many numbers of an account were compared, and a line for each that differs.

    Args:
        account: Markdown of findings, and of a table of Pass@N or of families.
        folder: the run's.
        of: name of the sweep and of the selector; None for a run of families alone.
    """
    run = Run(folder)
    if of is None:
        found = [*told_of_families(account, run)]
    else:
        found = [*told_of_heads(account, run, of), *told_of_curves(account, run, of)]
    wrong = [
        f"{what}: the account says {said:g}, the answers give {given:.2f}"
        for what, said, given in found
        if not abs(said - given) <= HALF
    ]
    return len(found), wrong


if __name__ == "__main__":
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    demo = readme.partition("<!-- From the demo's tables")[2].partition("<!-- End of")[0]
    compared, differing = compare(demo, sys.argv[1], "math")
    print(*differing, f"{compared} numbers compared, {len(differing)} differ", sep="\n")
    sys.exit(bool(differing))
