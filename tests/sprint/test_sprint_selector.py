import math
from dataclasses import astuple, fields, replace
from itertools import combinations, product

import numpy as np
import pytest
import torch
from simulated_heads import options, simulate
from sklearn.linear_model import LogisticRegression

from headsweep.errors import ConfigError, TableError
from headsweep.experiments.sprint import methods, rankers, validation
from headsweep.experiments.sprint.fitting import (
    agreement,
    alignment,
    choose,
    fit,
    rank_again,
    separation,
)
from headsweep.experiments.sprint.head_selector import (
    HeadSelector,
    Setting,
    load_selector,
    rank_heads,
    save_selector,
    squared_distances,
)
from headsweep.experiments.sprint.methods import SPRINT
from headsweep.experiments.sprint.rankers import EmbeddedQuestions, greedy_cover
from headsweep.experiments.sprint.validation import ALL, redraws, splits
from headsweep.statistics.answers import pass_at_n_ordered
from headsweep.statistics.intervals import Bootstrap

EMBEDDING_DIM, POOL, DIMENSION = 11, 7, 5
PLACES = {
    "sphere": lambda u: u / u.norm(),
    "ball": lambda u: u / (1 + u.norm() ** 2) ** 0.5,
    "literal": lambda u: u,
}
each_geometry = pytest.mark.parametrize("geometry", PLACES)


def setting_of(geometry, dimension, diversity, decay=0.01, epochs=200, rate=0.01, embedder=""):
    return Setting(geometry, dimension, diversity, decay, epochs, rate, embedder)


def make(geometry):
    return HeadSelector(EMBEDDING_DIM, POOL, setting_of(geometry, DIMENSION, 0.1), 0)


def questions():
    return torch.randn(13, EMBEDDING_DIM, generator=torch.Generator().manual_seed(1))


@each_geometry
def test_distances_equal_their_definition_and_a_saved_selector_gives_the_same(geometry, tmp_path):
    selector, place = make(geometry), PLACES[geometry]
    found = selector.distances(questions())
    assert found.shape == (13, POOL)
    for i, x in enumerate(questions()):
        q = selector.theta_weight @ x + selector.theta_bias
        wanted = [(place(q) - place(v)).square().sum() for v in selector.heads]
        torch.testing.assert_close(found[i], torch.stack(wanted), atol=1e-5, rtol=1e-5)
    facts = {"heads": ["L00H00", "L00H01"], "embedder": "e-01234567", "seed": 3}
    paths = [tmp_path / "first.safetensors", tmp_path / "second.safetensors"]
    for path in paths:
        save_selector(path, make(geometry), facts)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    loaded, again = load_selector(paths[0])
    assert again.items() >= facts.items()
    assert loaded.setting == selector.setting
    assert torch.equal(loaded.distances(questions()), found)
    with torch.no_grad():
        loaded.heads[5] = loaded.heads[2]
    order, distances = rank_heads(loaded, questions())
    assert (np.diff(distances, axis=1) >= 0).all()
    positions = order.argsort(axis=1)  # of equals, the first in the pool comes first
    assert (positions[:, 5] == positions[:, 2] + 1).all()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "is missing"),
        (b"\x08\0\0\0\0\0\0\0{}      ", "is not a head selector"),
        (b"no tensors", "cannot be read"),
    ],
)
def test_a_file_that_is_no_selector_is_refused_in_one_line(content, message, tmp_path):
    path = tmp_path / "selector.safetensors"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TableError, match=rf"selector\.safetensors {message}") as caught:
        load_selector(path)
    assert "\n" not in str(caught.value)


def as_printed(q, v, z, weight):
    """The paper's formula, one sum at a time; questions that no head solves are left out."""
    near = np.exp(-((q[:, None] - v) ** 2).sum(axis=2))
    of_all = zip(near, z, strict=True)
    terms = [-math.log(one[own].sum() / one.sum()) for one, own in of_all if any(own)]
    pairs = combinations(range(len(v)), 2)
    apart = sum((z[:, j] == z[:, k]).mean() * sum((v[j] - v[k]) ** 2) for j, k in pairs)
    return np.mean(terms) - weight * apart


@pytest.mark.parametrize("diversity", [0.0, 0.3])
def test_loss_equals_the_formula_summed_one_term_at_a_time(diversity):
    draw = torch.Generator().manual_seed(0)
    queries = torch.randn(13, DIMENSION, generator=draw, dtype=torch.float64)
    heads = torch.randn(POOL, DIMENSION, generator=draw, dtype=torch.float64)
    correct = torch.rand(13, POOL, generator=draw) < 0.4
    correct[[2, 5]] = torch.tensor([[False], [True]])
    kept = correct.any(dim=1)
    total = alignment(squared_distances(queries, heads)[kept], correct[kept])
    total = total - diversity * separation(heads, agreement(correct).double())
    wanted = as_printed(queries.numpy(), heads.numpy(), correct.numpy(), diversity)
    assert total.item() == pytest.approx(wanted, abs=1e-6)  # s_jk is float32
    # Distances that underflow.
    distances = torch.tensor([[4000.0, 1000.0, 1003.0]])
    correct = torch.tensor([[True, False, True]])
    wanted = 3 + math.log1p(math.exp(-3))
    assert alignment(distances, correct).item() == pytest.approx(wanted, rel=1e-4)


def train(data, *setting):
    return fit(*data, [setting_of(*setting, decay=1.0, epochs=60)], [0])[0]


@each_geometry
def test_heads_are_found_where_embeddings_reveal_them_and_only_there(geometry):
    lowest = {}
    for revealed in (True, False):
        learnt, test = (simulate(n, revealed=revealed, seed=n) for n in (300, 600))
        selector = train(learnt, geometry, 8, 0.0).selector
        order, _ = rank_heads(selector, test.embeddings)
        sprint = pass_at_n_ordered(np.take_along_axis(test.correct, order, axis=1), 4)
        cover = pass_at_n_ordered(test.correct[:, greedy_cover(learnt.correct)], 4)
        lowest[revealed], _ = Bootstrap(600, 1000, seed=0).interval(sprint - cover)
    assert lowest[True][0] > 0.4  # planted: 0.85 · 0.9 against about 0.25
    assert lowest[True][1] > 0.2
    assert (lowest[False] <= 0).all()


@pytest.mark.parametrize("geometry", ["sphere", "ball", "literal"])
def test_where_no_head_solves_a_question_heads_still_move_apart(geometry):
    data = simulate(13)
    data.correct[:] = False
    still, apart = (train(data, geometry, 6, diversity) for diversity in (0.0, 0.1))
    assert still.training_loss == 0
    assert apart.training_loss < 0
    order, _ = rank_heads(apart.selector, data.embeddings)
    assert (np.sort(order, axis=1) == np.arange(data.correct.shape[1])).all()


def test_a_constant_feature_is_harmless():
    data = simulate(53)
    data.embeddings[:, [3, 8]] = 0.1, 0.0
    data.embeddings[::2, 3] = np.nextafter(np.float32(0.1), np.float32(1))
    trained = train(data, "sphere", 6, 0.1)
    assert np.isfinite(trained.training_loss)
    assert trained.selector.theta_weight[:, [3, 8]].abs().max() < 10


def test_the_literal_reading_diverges_and_the_bounded_ones_do_not():
    data = simulate(60)
    for diversity in (0.01, 1.0):
        literal = train(data, "literal", 6, diversity)
        assert literal.diverged
        assert literal.training_loss < -1  # the alignment term is never below 0
        for geometry in ("sphere", "ball"):
            bounded = train(data, geometry, 6, diversity)
            assert not bounded.diverged
            assert bounded.training_loss >= -4 * diversity
    assert not train(data, "literal", 6, 0.0).diverged


def test_choice_lists_every_setting_and_seed_and_takes_the_best_mean():
    """Of two embeddings, one that tells the cluster and one that is noise."""
    data, noise = simulate(80), simulate(80, revealed=False)
    embeddings = {"blind": noise.embeddings, "telling": data.embeddings}
    several = {"embedder": ("blind", "telling"), "geometry": ("ball", "sphere")}
    several |= {"dimension": (2, 7), "diversity": (0.0, 0.5), "weight_decay": (0.1, 2.0)}
    chosen, table = choose(embeddings, data.correct, options(**several, epochs=20))
    keys = [field.name for field in fields(Setting)]
    assert len(table) == 2**5 * 3
    best = table.groupby(keys)["mean_pass"].mean().idxmax()
    assert astuple(chosen) == best and chosen.embedder == "telling"
    assert {tuple(row) for row in table.loc[table["chosen"], keys].to_numpy()} == {best}


def alone(embeddings, correct, setting, seed):
    """Train one selector with `torch.optim.AdamW`; return its distances and its loss."""
    inputs = (embeddings - embeddings.mean(0)) / embeddings.std(0, correction=0)
    kept, pool = correct.any(1), correct.shape[1]
    weights = agreement(correct)
    if setting.geometry != "literal":
        weights /= pool * (pool - 1) / 2
    selector = HeadSelector(embeddings.shape[1], pool, setting, seed)
    groups = [
        {"params": [selector.theta_weight], "weight_decay": setting.weight_decay},
        {"params": [selector.theta_bias, selector.heads, selector.log_temperature]},
    ]
    optimiser = torch.optim.AdamW(groups, lr=setting.learning_rate, weight_decay=0.0)

    def total():
        distances = selector.distances(inputs[kept]) / selector.log_temperature.exp()
        apart = separation(selector.placed_heads(), weights)
        return alignment(distances, correct[kept]) - setting.diversity * apart

    for _ in range(setting.epochs):
        optimiser.zero_grad()
        total().backward()
        optimiser.step()
    return selector.distances(inputs).detach(), total().item()


@each_geometry
def test_selectors_learn_side_by_side_what_each_would_learn_alone(geometry):
    data = simulate(41, pool=11, embedding_dim=17)
    embeddings, correct = map(torch.from_numpy, data)
    assert 0 < (~correct.any(dim=1)).sum() < 41
    several = [(0.0, 0.01), (0.3, 2.0), (0.05, 0.0), (0.0, 5.0)]  # λ and weight decay
    settings = [setting_of(geometry, 5, *each, epochs=25, rate=0.02) for each in several]
    seeds = [3, 3, 8, 1]
    found = fit(*data, settings, seeds)
    for setting, seed, one in zip(settings, seeds, found, strict=True):
        distances, final = alone(embeddings, correct, setting, seed)
        assert one.selector.setting == setting
        assert one.training_loss == pytest.approx(final, rel=1e-3, abs=1e-4)
        learnt = one.selector.distances(embeddings).detach()
        torch.testing.assert_close(learnt, distances, atol=2e-3, rtol=2e-3)


def test_a_setting_that_diverged_is_not_chosen_however_good_it_looks(monkeypatch):
    curves = iter([np.ones(16)] * 3 + [np.zeros(16)] * 3)  # of the diverged one, then of the other
    monkeypatch.setattr(validation, "ranked_pass", lambda *_: next(curves))
    embeddings, correct = simulate(60)
    one = {"geometry": ("literal",), "dimension": (6,), "weight_decay": (0.1,), "epochs": 100}
    chosen, table = choose({"e": embeddings}, correct, options(diversity=(1.0, 0.0), **one))
    assert chosen.diversity == 0.0
    assert list(table["diverged"]) == [True] * 3 + [False] * 3


def test_splits_and_redraws_are_disjoint_and_complete():
    given = options(validation=0.2, seeds=(5, 6), redraws=4)
    few = options(validation=0.9, redraws=4)
    parts = splits(23, given)
    assert all(sorted([*fitted, *held_out]) == list(range(23)) for fitted, held_out in parts)
    assert [len(held_out) for _, held_out in parts] == [5, 5]
    assert set(parts[0][1]) != set(parts[1][1])
    whole, *drawn = redraws(23, given).items()
    assert (whole[0], list(whole[1])) == (ALL, list(range(23)))
    assert [len(set(rows)) for _, rows in drawn] == [15] * 4  # two thirds
    assert len({tuple(rows) for _, rows in drawn}) == 4
    assert [len(asked) for _, asked in splits(2, few)] == [1] * 3
    # A setting is chosen on a split of a redraw.
    assert [len(rows) for rows in redraws(2, few).values()] == [2] * 5
    with pytest.raises(ConfigError, match="1 training questions cannot be split"):
        splits(1, few)


@pytest.mark.parametrize("setting", ["fixed", "anew"])
def test_rankings_of_every_training_are_those_of_selectors_fitted_alone(setting):
    data, other = simulate(31, pool=7), simulate(11, pool=7, seed=5)
    narrow = {"e": slice(None), "f": slice(5)}  # the second embedder's are shorter
    training = EmbeddedQuestions(
        range(31), {name: data.embeddings[:, some] for name, some in narrow.items()}, [None] * 31
    )
    test = EmbeddedQuestions(
        range(11), {name: other.embeddings[:, some] for name, some in narrow.items()}, [None] * 11
    )
    several = {"dimension": (4,), "diversity": (0.0, 0.3), "weight_decay": (0.1,), "epochs": 15}
    several |= {"embedder": ("e", "f"), "max_n": 5}
    given = options(**several, seeds=(2, 9), redraws=2, redrawn_setting=setting)
    kept = setting_of("ball", 4, 0.3, 0.1, epochs=15, embedder="e")
    again = rank_again(training, data.correct, test, kept, given)
    rankings = {
        (each.method, each.training, each.seed): (list(each.question_ids), each.heads)
        for each in again
    }
    others = {
        f"{geometry}, λ = {value:g}, e": replace(kept, geometry=geometry, diversity=value)
        for geometry, value in product(("sphere", "ball"), (0.0, 0.3))
    }
    others["ball, λ = 0.3, f"] = replace(kept, embedder="f")
    drawn = redraws(31, given)
    assert set(rankings) == set(product([SPRINT, *others], drawn, (2, 9)))
    for (method, name, seed), (ids, order) in rankings.items():
        rows = drawn[name]
        assert ids == list(range(11))
        trained_with = others.get(method, kept)
        if setting == "anew" and method == SPRINT and name != ALL:
            trained_with, _ = choose(training.of(rows).embeddings, data.correct[rows], given)
        vectors = training.embeddings[trained_with.embedder][rows]
        (trained,) = fit(vectors, data.correct[rows], [trained_with], [seed])
        assert order.shape[1] == (7 if method == SPRINT else 5)  # of readings, max_n heads
        vectors = test.embeddings[trained_with.embedder]
        distances = trained.selector.distances(torch.from_numpy(vectors)).detach().numpy()
        ordered = np.take_along_axis(distances, order, axis=1)
        assert (np.diff(ordered, axis=1) > -1e-3).all()  # near-ties may turn


KNOWN, ASKED = 83, 19


@pytest.fixture(scope="module")
def sets():
    training, test = (simulate(n, POOL, 3, 13, seed=n) for n in (KNOWN, ASKED))
    subjects = [["algebra", "geometry"][row % 3 == 0] for row in range(KNOWN)]
    return (
        EmbeddedQuestions(range(KNOWN), {"e": training.embeddings}, subjects),
        training.correct,
        EmbeddedQuestions(
            range(ASKED), {"e": test.embeddings}, ["geometry"] * 4 + ["new"] * (ASKED - 4)
        ),
    )


def test_neighbours_are_those_of_a_plain_loop(sets):
    training, correct, test = sets
    rankings = rankers.by_neighbours("e", 5, training, correct, test)
    fitted = training.embeddings["e"]
    centre, scale = fitted.mean(axis=0), fitted.std(axis=0)
    for row, vector in enumerate((test.embeddings["e"] - centre) / scale):
        cosines = [
            vector @ other / np.linalg.norm(vector) / np.linalg.norm(other)
            for other in (fitted - centre) / scale
        ]
        nearest = sorted(range(KNOWN), key=lambda one: -cosines[one])[:5]
        share = correct[nearest].mean(axis=0)
        wanted = sorted(range(POOL), key=lambda head: (-share[head], -correct[:, head].mean()))
        assert rankings[row].tolist() == wanted


@pytest.mark.parametrize("penalty", [0.01, 0.3])
def test_regressions_are_those_of_scikit_learn(sets, penalty):
    training, correct, test = sets
    rankings = rankers.by_regression("e", penalty, training, correct, test)
    fitted = training.embeddings["e"]
    centre, scale = fitted.mean(axis=0), fitted.std(axis=0)
    fitted, others = ((one.embeddings["e"] - centre) / scale for one in (training, test))
    chances = np.empty((ASKED, POOL))
    for head, column in enumerate(correct.T):
        model = LogisticRegression(C=1 / (2 * penalty * KNOWN), tol=1e-8, max_iter=2000)
        chances[:, head] = model.fit(fitted, column).decision_function(others)
    ordered = np.take_along_axis(chances, rankings, axis=1)
    assert (np.diff(ordered, axis=1) < 1e-2).all()  # near-ties may turn
    assert (rankings == np.argsort(-chances, axis=1)).mean() > 0.9


def test_a_subject_has_its_own_cover_and_a_new_one_that_of_all(sets):
    training, correct, test = sets
    rankings = rankers.by_subject(training, correct, test)
    geometry = np.array(training.subjects) == "geometry"
    assert (rankings[:4] == greedy_cover(correct[geometry])).all()
    assert (rankings[4:] == greedy_cover(correct)).all()
    given = options(max_n=4, seeds=(1, 2))
    assert set(rankers.rankers(training, correct, given)) == set(methods.RIVALS)
    nameless = training._replace(subjects=[None] * KNOWN)
    assert methods.BY_SUBJECT not in rankers.rankers(nameless, correct, given)


def test_greedy_cover_equals_a_plain_loop():
    for seed in range(20):
        z = np.random.default_rng(seed).random((29, 7)) < 0.25
        order = greedy_cover(z)
        assert sorted(order) == list(range(7))
        solved = set()
        for place, head in enumerate(order):
            gains = [len(set(np.flatnonzero(z[:, j])) - solved) for j in order[place:]]
            assert gains[0] == max(gains)
            tied = [j for j, gain in zip(order[place:], gains, strict=True) if gain == gains[0]]
            assert max(tied, key=lambda j: (z[:, j].sum(), -j)) == head
            solved |= set(np.flatnonzero(z[:, head]))


def test_a_shortlist_is_chosen_on_held_out_training_questions():
    train, given = simulate(100, pool=9).correct, options(shortlist=(4, 2, 9, 11), max_n=6)
    chosen, held_out = rankers.weigh_shortlists(train, given)
    assert list(held_out) == list(product(rankers.CRITERIA, [2, 4, 9]))  # the pool's size at most
    assert held_out[chosen].mean() == max(values.mean() for values in held_out.values())
    heads = rankers.shortlists(train, given)
    for (criterion, k), listed in heads.items():
        assert listed.tolist() == rankers.CRITERIA[criterion](train)[:k].tolist()
    passed = []
    for fitted, left_out in splits(100, given):
        best = np.argsort(-train[fitted].sum(axis=0), kind="stable")[:2]
        passed.append(
            [train[left_out][:, best].mean(), train[left_out][:, best].any(axis=1).mean()]
        )
    scores = held_out["individual accuracy", 2]
    assert scores[[0, 4]] == pytest.approx(np.mean(passed, axis=0))
