"""A map in a simulated run: its verdict, its part of the page, and sweeps that take its heads."""

import logging
import re
from contextlib import chdir

import numpy as np
import pandas as pd
import pytest

import simulation
from headsweep.cli.store_files import files_of
from headsweep.config import parse
from headsweep.errors import ConfigError, TableError
from headsweep.experiments.maps.table import write_tables
from headsweep.files import paths
from headsweep.files.record import Stopwatch, rewrite_checksums, write_record
from headsweep.files.safe_files import read_table, write_csv, write_table
from headsweep.files.tables import ACCURACY, SCORES
from headsweep.page.blocks import Section
from headsweep.page.figures.draw import draw
from headsweep.page.map_section import mapped
from headsweep.results.marks import Mark
from headsweep.results.verdicts import verdicts
from headsweep.store.batches import batches, pool
from headsweep.store.layout import Store
from headsweep.store.map_scores import (
    find_map,
    score_files,
    scored_variants,
    texts_key,
)
from headsweep.store.revisions import resolve
from headsweep.text import nats

HELPS = "L02H05"
MATTERS = "L05H01"
QUESTIONS = 21


def mapping(**sweeps):
    map_of = {"model": "reasoner", "questions": "math_train", "sampling": ["T0.6"]}
    map_of |= {"layers": [0, 2, 5], "noise_placebos": 2}
    return parse(simulation.DEMO | {"maps": {"known": map_of}, "papers": False} | sweeps)


def put_scores(config, strength=1.5, kinds=("right", "wrong"), noise=0.0):
    """Write scores in which losing one head makes texts of the first kind likelier than others.

    Losing another makes all texts less likely. Noise in the place of heads makes those of the first
    kind likelier by `noise`.
    """
    draws = np.random.default_rng(2)
    for layer, file in zip((0, 2, 5), score_files(config, "known"), strict=True):
        rows = []
        for variant in scored_variants(config, "known", layer):
            for number in range(QUESTIONS):
                for kind in kinds:
                    change = draws.normal(scale=0.2) - 0.1
                    change += strength * (str(variant) == HELPS and kind == kinds[0])
                    change -= strength * (str(variant) == MATTERS)
                    change += noise * (variant.kind == "noise" and kind == kinds[0])
                    change = 0.0 if variant.kind == "replay" else change
                    score = -30 - number + change
                    rows.append((f"q{number}", kind, str(variant), score, 13, 9))
        write(file, rows, SCORES)


def write(file, rows, table):
    path = Store(mapping()).path(file)
    write_table(path, pd.DataFrame(rows, columns=table.columns), table)
    write_record(path, Stopwatch(), {})


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """Return the folder of a run that is filled once for all tests."""
    with chdir(folder := tmp_path_factory.mktemp("run")):
        simulation.fill(resolve(mapping()))
    return folder


@pytest.fixture(autouse=True)
def _fewer_resamples(monkeypatch):
    monkeypatch.setattr("headsweep.experiments.maps.outcomes.RESAMPLES", 1000)


@pytest.fixture
def config(once, enter_copy):
    enter_copy(once)
    return resolve(mapping())


def of_map(config):
    return verdicts(Store(config.model_copy(update={"sweeps": {}, "selectors": {}})))[0]


def test_a_head_whose_loss_favours_right_answers_is_named_and_shown(config, caplog):
    put_scores(config)
    with caplog.at_level(logging.INFO):
        write_tables(Store(config), "known")
    shown = "likelihood lower without 1 and higher without 1; preference higher without 1"
    assert f"known: heads shown to matter: {shown}" in caplog.text
    verdict = of_map(config)
    assert (verdict.mark, verdict.section) == (Mark.BETTER, "heads")
    assert verdict.answer == "1 head's loss favours right answers"
    heads = pd.read_csv(Store(config).path(paths.MAP, map="known", table="heads"))
    best = heads[heads["outcome"] == "preference"].set_index("variant").loc[HELPS]
    assert f"{best['change']:+.2f} (" in str(verdict.effect) and "of 24:" in str(verdict.effect)
    likelihood = heads[heads["outcome"] == "likelihood"].set_index("variant")
    assert likelihood["shown"].dropna().to_dict() == {HELPS: "higher", MATTERS: "lower"}
    # Noise does as much as what some other heads do.
    assert (likelihood["adjusted"] < 0.05).sum() > 2
    assert "; 1 matter beyond 2 heads' noise." in str(verdict.effect)
    section = Section("heads", "Which heads matter?")
    mapped(Store(config), section)
    svg = str(section.blocks[0].svg)
    left, right = svg.split('role="group"')[1:]
    titles = re.findall(r'<p class="note">(\w+)', svg)
    assert titles == ["Preference", "Likelihood"] and svg.index("Likelihood of") > svg.index(left)
    assert left.count("▲") == 1 and "L02H05" in left.partition("▲")[0].rpartition("<")[2]
    name = f"{HELPS}: {nats(best['change'])}, shown"
    assert f'title="{name}" aria-label="{name}">▲</a>' in left
    assert "▼" not in left and "12" not in right.split("of 24")[0][-2:]
    assert svg.count('href="#demo/') == 2 * 24  # the sweep has the heads of these layers
    (numbers, _) = section.folds["Every head"]  # for readers without a pointer
    assert numbers.titles == ["layer", *(f"head {head}" for head in range(8))]
    (row,) = [row for row in numbers.rows if row[0] == "L2"]
    assert str(row[6]) == f"{nats(best['change'])} ▲"
    draw(Store(config), "map", "known")
    shown = pd.read_csv("results/simulated/figures/map_known.csv")
    assert len(shown) == 2 * 3 * (8 + 2)


def test_a_head_that_does_no_more_than_noise_in_its_layer_is_not_said_to_help(config):
    put_scores(config, noise=1.4)
    write_tables(Store(config), "known")
    heads = pd.read_csv(Store(config).path(paths.MAP, map="known", table="heads"))
    best = heads[heads["outcome"] == "preference"].set_index("variant").loc[HELPS]
    assert best["adjusted"] < 0.05 and 0 < best["band_low"] < 1.4
    verdict = of_map(config)
    assert (verdict.mark, verdict.answer) == (
        Mark.NOT_SHOWN,
        "No head's loss is shown to favour right answers",
    )
    layers = pd.read_csv(Store(config).path(paths.MAP, map="known", table="layers"))
    noise = layers.set_index(["outcome", "layer"]).loc[("preference", 2), "noise"]
    assert f"21 questions; noise in its layer: {nats(noise)}; " in str(verdict.effect)
    section = Section("heads", "Which heads matter?")
    mapped(Store(config), section)
    preference, _ = str(section.blocks[0].svg).split('role="group"')[1:]
    assert "▲" not in preference, "the map says what the verdict says"


def test_layers_that_have_scored_other_texts_are_refused(config):
    put_scores(config)
    _, other, _ = score_files(config, "known")
    file = Store(config).path(other)
    rows = read_table(file, SCORES)
    rows.loc[rows["question_id"] == "q3", "tokens"] = 12
    write(other, rows.to_numpy().tolist(), SCORES)
    with pytest.raises(TableError, match=r"L02\.parquet scores other texts than .*L00\.parquet"):
        write_tables(Store(config), "known")


@pytest.mark.parametrize(
    ("strength", "kinds", "wanted"),
    [
        (0.0, ("right", "wrong"), "– No head's loss is shown to favour right answers"),
        (0.0, ("solution",), "– No head's loss is shown to favour reference solutions"),
        (1.5, ("solution",), "▲ 1 head's loss makes reference solutions likelier"),
    ],
)
def test_a_verdict_speaks_of_the_texts_that_were_scored(config, strength, kinds, wanted):
    put_scores(config, strength, kinds)
    write_tables(Store(config), "known")
    verdict = of_map(config)
    assert f"{verdict.mark} {verdict.answer}" == wanted
    assert len(str(verdict).split()) <= 40
    if "wrong" in kinds:
        return
    assert "nats a token" in str(verdict.effect)
    # Its solutions may rank gains; of preference and likelihood it has nothing.
    table = pd.read_csv(file := Store(config).path(paths.MAP, map="known", table="foretold"))
    assert set(table["outcome"]) == {"solutions"}
    table[["correlation", "low", "high"]] = [0.9, 0.8, 0.95]
    write_csv(file, table)
    rewrite_checksums(file)
    said = str(of_map(config).so)
    assert said.startswith("The map ranks gains (ρ): solutions 0.90.")


def test_a_head_that_is_shown_stands_in_the_verdict_whatever_another_one_changed(config):
    put_scores(config)
    write_tables(Store(config), "known")
    file = Store(config).path(paths.MAP, map="known", table="heads")
    table = pd.read_csv(file)
    shown = table[(table["outcome"] == "preference") & (table["variant"] == HELPS)].index[0]
    noisy = table[(table["outcome"] == "preference") & (table["variant"] == "L00H00")].index[0]
    table.loc[noisy, ["change", "band_low", "band_high", "adjusted"]] = [9.0, -1.0, 19.0, 0.3]
    assert pd.isna(table.loc[noisy, "shown"])
    write_csv(file, table)
    rewrite_checksums(file)
    effect = str(of_map(config).effect)
    assert effect.startswith("Best shown, of 24: ")
    assert nats(table.loc[shown, "change"]) in effect


def test_a_map_is_held_against_the_gains_under_every_decoding_of_one_question_set(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    sweep = {"model": "reasoner", "questions": "math_test", "layers": [0, 2, 5]}
    sweeps = {name: {**sweep, "decoding": name} for name in ("greedy", "authors")}
    several = mapping(sweeps=sweeps, selectors={}, comparisons={})
    simulation.fill(several)
    put_scores(several)
    write_tables(Store(several), "known")
    store = Store(several)
    table = pd.read_csv(store.path(paths.MAP, map="known", table="foretold"))
    scored = table.query("outcome == 'preference'")
    titles = [f"MATH-like, test, decoding {name}" for name in ("authors", "greedy")]
    assert sorted(scored["title"]) == titles
    best = scored.set_index("decoding")["best_gain"]
    for decoding in ("greedy", "authors"):
        z = store.read(ACCURACY, model="reasoner", decoding=decoding, questions="math_test")
        gains = z.filter(regex=r"^L\d\dH").mean() - z["base"].mean()
        assert best[decoding] == pytest.approx(gains.max(), abs=1e-6)
    assert best["greedy"] != best["authors"]


def test_damaged_scores_are_noticed(config):
    put_scores(config)
    file = Store(config).path(score_files(config, "known")[1])
    content = bytearray(file.read_bytes())
    content[40] ^= 255
    file.write_bytes(content)
    with pytest.raises(TableError, match=r"L02\.parquet"):
        write_tables(Store(config), "known")


def test_a_sweep_takes_heads_from_a_map_once_it_is_there(config, caplog):
    sweep = {"model": "reasoner", "questions": "math_test", "layers": [2, 5]}
    asked = mapping(
        sweeps={"top": {**sweep, "heads": {"map": "known", "top": 3, "outcome": "preference"}}}
    )
    with caplog.at_level(logging.WARNING):
        assert resolve(asked).sweeps == {}
    assert "sweeps.top waits for maps.known" in caplog.text
    put_scores(config)
    write_tables(Store(config), "known")
    resolved = resolve(asked)
    table = pd.read_csv(Store(config).path(paths.MAP, map="known", table="heads"))
    wanted = table.query("kind == 'head' and outcome == 'preference' and layer > 0")
    best = wanted.sort_values("change", ascending=False)["variant"].head(3)
    assert resolved.sweeps["top"].heads.chosen == tuple(best) and best.iloc[0] == HELPS
    assert [str(each) for each in pool(resolved, resolved.sweeps["top"])] == sorted(best)
    (batch,) = [
        each for each in batches(Store(resolved)).values() if each.questions == "math_test"
    ][:1]
    assert {str(each) for each in batch.variants} >= set(best)
    # What was chosen stays, whatever becomes of the map.
    write_tables(Store(config), "known")
    file = Store(config).path(paths.MAP, map="known", table="heads")
    table.assign(change=-table["change"]).to_csv(file, index=False)
    rewrite_checksums(file)
    again = parse(resolved.model_dump(mode="json"))
    assert resolve(again).sweeps["top"].heads.chosen == tuple(best)
    unmeasured = {**sweep, "heads": {"map": "known", "top": 3, "outcome": "solutions"}}
    with pytest.raises(ConfigError, match=r"map 'known' has solutions of 0 heads in the sweep's"):
        resolve(mapping(sweeps={"top": unmeasured}))


def test_files_of_scores_are_named_by_what_decides_them():
    config = mapping()
    key = texts_key(config, "known")
    assert find_map(config, key)[0] == "known"
    with pytest.raises(ConfigError, match="this config has no 'other-00000000'"):
        find_map(config, "other-00000000")

    def with_change(**change):
        maps = {"known": config.maps["known"].model_copy(update=change)}
        return texts_key(config.model_copy(update={"maps": maps}), "known")

    assert with_change(layers=(1,)) == with_change(title="Other") == key
    changes = [{"n": 9}, {"dtype": "float32"}, {"noise_placebos": 1}, {"sampling": ()}]
    keys = [with_change(**change) for change in changes]
    assert len({key, *keys}) == 5
    other = config.model_copy(update={"grading": "authors"})
    assert texts_key(other, "known") != key
    for name in (config.maps["known"].decoding, *config.maps["known"].sampling):
        shorter = config.decodings[name].model_copy(update={"max_new_tokens": 5})
        other = config.model_copy(update={"decodings": config.decodings | {name: shorter}})
        assert texts_key(other, "known") != key, name
    held = {str(file) for file in files_of(Store(config))}
    assert set(score_files(config, "known")) <= held
    _, *scored = map(str, scored_variants(config, "known", 2))
    assert scored[-2:] == ["L02N00", "L02N04"]
