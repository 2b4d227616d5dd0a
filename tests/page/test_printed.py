"""Printed exhibits show what the papers print, or what a run has, and say why a cell is empty."""

import json
import shutil
import subprocess
from contextlib import chdir
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import simulation
from headsweep.config import load
from headsweep.page.printed import latex
from headsweep.page.printed.exhibits import DOCUMENT, PRINTED
from headsweep.page.printed.figures import gains, heatmap, pass_at_n
from headsweep.page.printed.job import write_printed
from headsweep.page.printed.numbers import AS_PRINTED, CELLS, Numbers, numbers_of, published_numbers
from headsweep.page.printed.tables import arms, head_pruning, mixtures, ratios, sizes, strata
from headsweep.results.published import LAYERS, SIZES
from headsweep.store.layout import Store
from simulation import PUBLISHED

HOSTILE = (
    r"\input{/etc/passwd}",
    "<script>alert(1)</script>",
    "100% & more ~ # { } ^ _ \" ' -- [x]",
    "Алгебра 数学 é",
)
"""Names that markup must not be made of."""


def exhibit(name):
    (found,) = (each for each in PRINTED if each.name == f"printed_{name}")
    return found


@pytest.fixture(scope="module")
def published():
    return published_numbers(PUBLISHED)


@pytest.fixture(scope="module")
def of_run(simulated):
    folder, config = simulated("whole")
    with chdir(folder.parents[1]):
        return numbers_of(Store(config), PUBLISHED)


def typeset(folder):
    if not shutil.which("pdflatex"):
        pytest.skip("pdflatex is not installed")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "printed.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, encoding="latin-1")
    assert done.returncode == 0, done.stdout[-2000:]
    for complaint in ("Overfull", "root:"):
        before, found, after = done.stdout.partition(complaint)
        assert not found, before[-300:] + found + after[:500]


def test_a_table_of_the_paper_has_its_cells_in_its_rows_and_columns(published):
    printed = pd.read_csv(PUBLISHED / "sprint_head_pruning.csv")
    for number, (model, layers) in enumerate(LAYERS.items(), start=1):
        made = head_pruning(exhibit(f"table{number}_sprint"), published)
        grid = made.parts[0].cells
        assert len(grid.columns) == 1 + 7 * 4
        assert list(grid.iloc[:, 0])[-1] == "No Prune"
        rows = printed[printed["model"] == model]
        heads = sorted(set(rows["head"]) - {"none"}, key=int)
        assert list(grid.iloc[:, 0])[:-1] == heads
        wanted = rows.set_index(["subject", "layer", "head"])["accuracy"]
        shown = 0
        for column in grid.columns[1:]:
            subject, layer = column[0].rpartition(" (n=")[0], int(column[1])
            assert layer in layers and column[0] == f"{subject} (n={SIZES[subject]})"
            for head, value in zip([*heads, "none"], grid[column], strict=True):
                told = wanted.get((subject, layer, head), np.nan)
                assert np.isnan(value) == np.isnan(told)
                assert np.isnan(value) or abs(value - told) < 0.0051
                shown += not np.isnan(value)
            known = grid[column][:-1].astype(float)
            bold = made.parts[0].bold[:, grid.columns.get_loc(column)]
            assert list(bold[:-1]) == [value == known.max() for value in known] and not bold[-1]
        assert shown == len(rows)
        assert ("cells)" in made.notes) == (shown < grid.size - len(grid))


def test_the_best_head_of_each_layer_stands_by_subject(published):
    made = head_pruning(exhibit("table1_sprint"), published)
    best = made.parts[1].cells.set_index(("", "Subject"))
    row = best.loc["Counting & Probability"]
    assert row["", "No Prune"] == pytest.approx(0.11, abs=0.005)
    assert (row["layer 10", "head"], row["layer 15", "head"]) == ("14", "11")
    assert row["layer 10", "best"] == pytest.approx(0.24, abs=0.005)


def test_the_second_papers_tables_are_those_that_it_prints(published):
    (math, asdiv) = ratios(exhibit("table1_compression"), published).parts
    assert (math.title, asdiv.title) == ("ATHENA-base, Math23k", "ATHENA-base, ASDiv-A")
    assert math.cells.iloc[3, 1:].tolist() == pytest.approx([83.7, -0.7, 18.7, 27.5, 17.5])
    (part,) = sizes(exhibit("table2_compression"), published).parts
    large = part.cells[part.cells.iloc[:, 0] == "ATHENA-large, ASDiv-A"]
    assert large.iloc[1, 2:].tolist() == pytest.approx([90.4, 18.1, 22.5])
    (part,) = mixtures(exhibit("table3a_compression"), published).parts
    assert part.cells["alpha"].tolist() == ["0", "0.3", "0.5", "0.7", "1"]
    assert part.cells.iloc[:, 1].tolist() == pytest.approx([83.1, 83.8, 84.0, 83.5, 71.2])
    assert part.cells.iloc[4, 2:].tolist() == pytest.approx([15.8, 22.7, 15.2])
    (part,) = strata(exhibit("table3b_compression"), published).parts
    assert part.cells.iloc[2, 0] == "Complex"
    assert part.cells.iloc[2, 1:].tolist() == pytest.approx([79.3, 78.6, -0.7])
    (part,) = arms(exhibit("table4_compression"), published).parts
    values = part.cells.set_index(("", "Metric"))
    assert values["w/o dynamic pruning", "Random pruning"].tolist() == pytest.approx(
        [81.5, 15.8, 22.7, 11.6]
    )
    assert values.shape == (4, 11)


def test_figure_2_has_a_violin_a_model_over_its_pairs(published):
    figure = gains(exhibit("figure2_sprint"), published)
    axes = figure.image.axes[0]
    labels = ["".join(tick.get_text().split()) for tick in axes.get_xticklabels()]
    counts = {"Meta-Llama-3-8B-Instruct": 28, "Qwen2.5-Math-1.5B-Instruct": 11}
    counts |= {"Qwen2.5-Math-7B-Instruct": 27, "Qwen2.5-7B-Instruct": 28}
    assert labels == [f"{model}{pairs}pairs" for model, pairs in counts.items()]
    table = pd.read_csv(PUBLISHED / "sprint_head_pruning.csv")
    cell = table.query("model == 'Qwen2.5-7B-Instruct' and subject == 'Algebra' and layer == 5")
    heads = cell[cell["head"] != "none"]["accuracy"]
    gain = heads.max() - cell[cell["head"] == "none"]["accuracy"].iloc[0]
    drawn = figure.data.query(
        "model == 'Qwen2.5-7B-Instruct' and subject == 'Algebra' and layer == 5"
    )
    assert drawn["gain"].item() == pytest.approx(gain, abs=0.011)


def test_figure_5_has_the_printed_columns_and_colours_of_accuracy(published):
    figure = heatmap(exhibit("figure5_sprint"), published)
    axes = figure.image.axes[0]
    printed = pd.read_csv(PUBLISHED / "sprint_figure5.csv")
    order = list(dict.fromkeys(printed["subject"]))
    assert [" ".join(t.get_text().split()) for t in axes.get_xticklabels()] == order
    values = axes.images[0].get_array()
    wanted = printed.pivot(index="head", columns="subject", values="accuracy")[order]
    wanted = wanted.loc[[*map(str, range(12)), "none"]].to_numpy()
    assert np.allclose(np.ma.filled(values, np.nan), wanted, atol=0.0051, equal_nan=True)
    assert figure.facts["layer"] == 21


def test_figure_4_is_empty_where_the_paper_prints_no_values(published):
    assert "without its values" in pass_at_n(exhibit("figure4_sprint"), published).alt


def test_a_run_shows_its_own_numbers_in_the_papers_places(of_run):
    made = head_pruning(exhibit("table1_sprint"), of_run)
    assert "in the place of Meta-Llama-3-8B-Instruct" in made.words["models"]
    other = head_pruning(exhibit("table3_sprint"), of_run)
    assert not other.parts and "not measured in run whole" in other.notes
    figure = pass_at_n(exhibit("figure4_sprint"), of_run)
    left, right = figure.image.axes
    assert [int(tick) for tick in left.get_xticks()] == list(range(1, 17))
    assert "sphere, λ = 0.001" in left.texts[0].get_text()
    assert "not measured in run whole" in right.texts[0].get_text()
    assert of_run.main is not None and of_run.main.title
    parts = ratios(exhibit("table1_compression"), of_run).parts
    assert [len(part.cells) > 1 for part in parts] == [True] * len(of_run.compressions)
    (part,) = arms(exhibit("table4_compression"), of_run).parts
    assert part.cells.set_index(("", "Metric")).notna().all(axis=None)


def test_sprint_as_printed_has_the_literal_loss_and_the_lambda_that_training_questions_chose(
    simulated, monkeypatch, tmp_path
):
    folder, config = simulated("whole")
    shutil.copytree(folder, tmp_path / "results" / config.run, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "results" / config.run / "sprint" / "math"
    keys = ["geometry", "diversity", "embedder", "mean_pass"]
    choice = [("sphere", 0.0, "a", 0.9), ("literal", 0.0, "a", 0.8)]
    choice += [("literal", 0.1, "a", 0.5), ("literal", 1.0, "a", 0.6), ("literal", 0.1, "a", 0.3)]
    for file in ("choice.csv", "ablation.csv"):
        (own / f"{file}.run.json").unlink(missing_ok=True)
    pd.DataFrame(choice, columns=keys).to_csv(own / "choice.csv", index=False)
    rows = [(g, d, "a", n, 0.1 * i) for i, (g, d, *_) in enumerate(choice) for n in ("1", "mean")]
    columns = ["geometry", "diversity", "embedder", "n", "pass_at_n"]
    pd.DataFrame(rows, columns=columns).to_csv(own / "ablation.csv", index=False)
    (curves,) = numbers_of(Store(config), PUBLISHED).curves
    printed = curves.rows[curves.rows["method"].str.startswith(AS_PRINTED)]
    assert printed[["method", "n"]].to_numpy().tolist() == [[f"{AS_PRINTED}: λ = 1", 1]]
    assert printed["pass_at_n"].item() == pytest.approx(0.3)


def test_without_a_run_all_exhibits_are_made_from_what_the_papers_print(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = load(PUBLISHED.parent / "published.yaml")
    write_printed(Store(config), PUBLISHED)
    for each in PRINTED:
        for file in each.files(config.run):
            assert (tmp_path / file).stat().st_size
    words = json.loads((tmp_path / exhibit("figure2_sprint").files("published")[-1]).read_text())
    assert words["sources"] == ["published"] and "as published" in words["caption"]
    tables = (tmp_path / DOCUMENT.format(run="published")).parent
    assert len(pd.read_csv(tables / "printed_table1_sprint.csv")) == 33 + 7
    typeset(tables)


def test_hostile_names_and_many_heads_are_typeset(tmp_path):
    rows = [
        ("Meta-Llama-3-8B-Instruct", HOSTILE[0], HOSTILE[1], layer, head, subject, 97, 0.5)
        for layer in (0, 1, 2)
        for head in [None, *range(70)]
        for subject in (*HOSTILE, *simulation.SUBJECTS)
    ]
    cells = pd.DataFrame(rows, columns=CELLS).astype({"layer": "Int64", "head": "Int64"})
    numbers = Numbers(HOSTILE[2], HOSTILE[3], cells, [], [])
    captions = {}
    for each in PRINTED[:2]:
        made = head_pruning(each, numbers)
        (tmp_path / f"{each.name}.tex").write_text(latex.table(each, made, HOSTILE[2]))
        captions[each] = HOSTILE[0]
    (tmp_path / "printed.tex").write_text(latex.document(HOSTILE[1], captions))
    typeset(tmp_path)
    assert latex.latex("λ_1 数") == r"\ensuremath{\lambda}\_1 {[}U+6570]"


def test_of_many_layers_four_are_printed_and_one_is_drawn():
    """They are the first, the last and two between; Figure 5's is as deep as 21 of 28."""
    cells = pd.DataFrame(
        [("Qwen2.5-7B-Instruct", "m", "q", layer, 0, "s", 9, 0.5) for layer in range(12)],
        columns=CELLS,
    )
    numbers = Numbers("", "", cells, [], [])
    assert list(numbers.of_model("Qwen2.5-7B-Instruct")["layer"]) == [0, 4, 7, 11]
    layer, shown = numbers.of_figure()
    assert (layer, len(shown)) == (9, 1)


def test_variations_as_the_paper_prints_the_method_are_columns_of_table_4(published):
    changed = ["importance.entropy: raw", "exponent: 2", "distillation.reduction: literal"]
    variations = pd.DataFrame({"arm": ["scores", "late", "printed_mse"], "changed": changed})
    variations = variations.assign(accuracy=[0.8, 0.7, 0.6], flops_removed=0.1)
    main = published.main
    assert main is not None
    with_them = replace(main, tables={**main.tables, "variations": variations})
    numbers = replace(published, compressions=[with_them])
    (part,) = arms(exhibit("table4_compression"), numbers).parts
    values = part.cells.set_index(("", "Metric")).loc["Accuracy (%)", "Ours, literally"]
    assert values.to_dict() == {"scores": 80, "printed mse": 60}
    assert "FLOPs ↓ (%)" in set(part.cells["", "Metric"])
