from dataclasses import astuple, fields, replace

import numpy as np
import pytest
import torch
from simulated_heads import Simulation, simulate

from headroom.config import Selector
from headroom.errors import ConfigError
from headroom.sprint import training
from headroom.sprint.model import HeadSelector, Setting, rank
from headroom.sprint.rankers import greedy_cover
from headroom.sprint.training import Fit, choose, fit, rank_again
from headroom.sprint.validation import ALL, readings, splits, trainings
from headroom.statistics.answers import pass_at_n_ordered
from headroom.statistics.bootstrap import Bootstrap


def selector(**keys: object) -> Selector:
    given = {"embedder": "e", **keys}
    return Selector(model="m", train="a", test="b", layers="all", **given)


def train(simulation: Simulation, setting: Setting, seed: int = 0) -> Fit:
    settings = [replace(setting, weight_decay=1.0, epochs=60)]
    return fit(*tensors(simulation), settings, [seed])[0]


def tensors(simulation: Simulation) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(simulation.embeddings), torch.from_numpy(simulation.correct)


def gain_over_cover(revealed: bool, setting: Setting) -> tuple[np.ndarray, np.ndarray]:
    """Interval of SPRINT minus the greedy cover on 600 test questions, for N = 1..4."""
    learned = simulate(300, revealed=revealed, seed=1)
    test = simulate(600, revealed=revealed, seed=2)
    order, _ = rank(train(learned, setting).selector, torch.from_numpy(test.embeddings))
    sprint = pass_at_n_ordered(np.take_along_axis(test.correct, order, axis=1), 4)
    cover = pass_at_n_ordered(test.correct[:, greedy_cover(learned.correct)], 4)
    return Bootstrap(600, 1000, seed=0).interval(sprint - cover)


@pytest.mark.parametrize("geometry", ["sphere", "ball", "literal"])
def test_heads_are_found_where_embeddings_reveal_them_and_only_there(geometry: str) -> None:
    low, _ = gain_over_cover(revealed=True, setting=Setting(geometry, 8, 0.0))
    assert low[0] > 0.4  # planted: 0.85 · 0.9 against about 0.25
    assert low[1] > 0.2
    low, _ = gain_over_cover(revealed=False, setting=Setting(geometry, 8, 0.0))
    assert (low <= 0).all()


def test_a_constant_feature_is_harmless() -> None:
    data = simulate(53)
    data.embeddings[:, [3, 8]] = 0.1, 0.0
    data.embeddings[::2, 3] = np.nextafter(np.float32(0.1), np.float32(1))
    trained = train(data, Setting("sphere", 6, 0.1))
    assert np.isfinite(trained.training_loss)
    assert trained.selector.theta_weight[:, [3, 8]].abs().max() < 10


def test_the_literal_reading_diverges_and_the_bounded_ones_do_not() -> None:
    data = simulate(60)
    for diversity in (0.01, 1.0):
        literal = train(data, Setting("literal", 6, diversity))
        assert literal.diverged
        assert literal.training_loss < -1  # the alignment term is never below 0
        for geometry in ("sphere", "ball"):
            bounded = train(data, Setting(geometry, 6, diversity))
            assert not bounded.diverged
            assert bounded.training_loss >= -4 * diversity
    assert not train(data, Setting("literal", 6, 0.0)).diverged


def test_training_on_questions_that_no_head_solves_is_refused() -> None:
    data = simulate(20)
    data.correct[:] = False
    with pytest.raises(ConfigError, match="no head solves any of the 20 training questions"):
        train(data, Setting("sphere", 6, 0.0))


def test_choice_lists_every_setting_and_seed_and_takes_the_best_mean() -> None:
    """Of two embeddings, one that tells the cluster and one that is noise."""
    data, noise = simulate(80), simulate(80, revealed=False)
    embeddings = {"blind": tensors(noise)[0], "telling": tensors(data)[0]}
    options = selector(
        embedder=("blind", "telling"),
        geometry=("ball", "sphere"),
        dimension=(2, 7),
        diversity=(0.0, 0.5),
        weight_decay=(0.1, 2.0),
        epochs=20,
    )
    chosen, table = choose(embeddings, tensors(data)[1], options)
    keys = [field.name for field in fields(Setting)]
    assert len(table) == 2 * 2 * 2 * 2 * 2 * 3
    assert set(table["seed"]) == {0, 1, 2}
    best = table.groupby(keys)["mean_pass"].mean().idxmax()
    assert astuple(chosen) == best
    assert chosen.embedder == "telling"
    assert {tuple(row) for row in table.loc[table["chosen"], keys].to_numpy()} == {best}
    assert (table["pass_at_1"] <= table["pass_at_4"]).all()


def alone(
    embeddings: torch.Tensor, correct: torch.Tensor, setting: Setting, seed: int
) -> tuple[torch.Tensor, float]:
    """Train one selector with `torch.optim.AdamW`; return its distances and its loss."""
    inputs = (embeddings - embeddings.mean(0)) / embeddings.std(0, correction=0)
    kept = correct.any(1)
    pool = correct.shape[1]
    weights = training.agreement(correct)
    if setting.geometry != "literal":
        weights /= pool * (pool - 1) / 2
    selector = HeadSelector(embeddings.shape[1], pool, setting, seed)
    groups = [
        {"params": [selector.theta_weight], "weight_decay": setting.weight_decay},
        {"params": [selector.theta_bias, selector.heads, selector.log_temperature]},
    ]
    optimiser = torch.optim.AdamW(groups, lr=setting.learning_rate, weight_decay=0.0)

    def total() -> torch.Tensor:
        distances = selector.distances(inputs[kept]) / selector.log_temperature.exp()
        apart = training.separation(selector.placed_heads(), weights)
        return training.alignment(distances, correct[kept]) - setting.diversity * apart

    for _ in range(setting.epochs):
        optimiser.zero_grad()
        total().backward()
        optimiser.step()
    return selector.distances(inputs).detach(), total().item()


@pytest.mark.parametrize("geometry", ["sphere", "ball", "literal"])
def test_selectors_learn_side_by_side_what_each_would_learn_alone(geometry: str) -> None:
    data = simulate(41, pool=11, embedding_dim=17)
    embeddings, correct = tensors(data)
    assert 0 < (~correct.any(dim=1)).sum() < 41
    settings = [
        Setting(geometry, 5, 0.0, 0.01),
        Setting(geometry, 5, 0.3, 2.0),
        Setting(geometry, 5, 0.05, 0.0),
        Setting(geometry, 5, 0.0, 5.0),
    ]
    settings = [replace(each, epochs=25, learning_rate=0.02) for each in settings]
    seeds = [3, 3, 8, 1]
    found = fit(embeddings, correct, settings, seeds)
    for setting, seed, one in zip(settings, seeds, found, strict=True):
        distances, final = alone(embeddings, correct, setting, seed)
        assert one.selector.setting == setting
        assert one.training_loss == pytest.approx(final, rel=1e-3, abs=1e-4)
        torch.testing.assert_close(
            one.selector.distances(embeddings).detach(), distances, atol=2e-3, rtol=2e-3
        )


def test_a_setting_that_diverged_is_not_chosen_however_good_it_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    curves = iter([np.ones(16)] * 3 + [np.zeros(16)] * 3)  # of the diverged one, then of the other
    monkeypatch.setattr(training, "ranked_pass", lambda *_: next(curves))
    data = simulate(60)
    options = selector(
        geometry=("literal",),
        diversity=(1.0, 0.0),
        dimension=(6,),
        weight_decay=(0.1,),
        epochs=100,
    )
    chosen, table = choose({"e": tensors(data)[0]}, tensors(data)[1], options)
    assert chosen.diversity == 0.0
    assert list(table["diverged"]) == [True] * 3 + [False] * 3


def test_each_question_is_held_out_by_one_fold() -> None:
    _, *found = trainings(23, selector(validation=0.2, seeds=(4,), redraws=0))
    assert [fold.name for fold in found] == [f"without fold {number}" for number in range(5)]
    assert [len(fold.held_out) for fold in found] == [5, 5, 5, 4, 4]
    assert sorted(row for fold in found for row in fold.held_out) == list(range(23))
    for fold in found:
        assert sorted([*fold.fit, *fold.held_out]) == list(range(23))
    assert len(trainings(3, selector(validation=0.9, redraws=0))) == 1 + 2
    with pytest.raises(ConfigError, match="1 training questions"):
        trainings(1, selector())


def test_redraws_are_two_thirds_and_differ() -> None:
    whole, *found = [each for each in trainings(20, selector(redraws=4)) if each.held_out is None]
    assert (whole.name, list(whole.fit)) == (ALL, list(range(20)))
    assert [len(set(each.fit)) for each in found] == [13] * 4
    assert len({tuple(each.fit) for each in found}) == 4
    fewest = [each for each in trainings(2, selector(redraws=4)) if each.held_out is None]
    assert [len(each.fit) for each in fewest] == [2] * 5  # a setting is chosen on a split of them


@pytest.mark.parametrize("setting", ["fixed", "anew"])
def test_rankings_of_every_training_are_those_of_selectors_fitted_alone(setting: str) -> None:
    data, asked = simulate(31, pool=7), simulate(11, pool=7, seed=5)
    embeddings, correct = tensors(data)
    test = torch.from_numpy(asked.embeddings)
    options = selector(
        dimension=(4,),
        diversity=(0.0, 0.3),
        weight_decay=(0.1,),
        seeds=(2, 9),
        redraws=2,
        redrawn_setting=setting,
        epochs=15,
    )
    kept = Setting("ball", 4, 0.3, 0.1, epochs=15, embedder="e")
    found = {
        (name, seed): order
        for name, seed, order in rank_again({"e": embeddings}, correct, {"e": test}, kept, options)
    }
    of_name = {each.name: each for each in trainings(31, options)}
    rows = {name: each.fit for name, each in of_name.items() if each.held_out is None}
    others = {
        name: replace(kept, geometry=geometry, diversity=value)
        for name, (geometry, value) in readings(options).items()
    }
    assert list(others) == ["sphere, λ = 0", "sphere, λ = 0.3", "ball, λ = 0", "ball, λ = 0.3"]
    assert set(found) == {(name, seed) for name in rows for seed in (2, 9)} | {
        (name, 2) for name in (*others, *(f"without fold {number}" for number in range(5)))
    }
    for (name, seed), order in found.items():
        if name in rows:
            part = embeddings[rows[name]], correct[rows[name]]
            anew = setting == "anew" and name != ALL
            wanted = choose({"e": part[0]}, part[1], options)[0] if anew else kept
            (trained,), vectors = fit(*part, [wanted], [seed]), test
        elif name in others:
            (trained,), vectors = fit(embeddings, correct, [others[name]], [seed]), test
        else:
            fold = of_name[name]
            (trained,) = fit(embeddings[fold.fit], correct[fold.fit], [kept], [seed])
            vectors = embeddings[fold.held_out]
        distances = trained.selector.distances(vectors).detach().numpy()
        ordered = np.take_along_axis(distances, order.astype(int), axis=1)
        assert (np.diff(ordered, axis=1) > -1e-3).all()  # near-ties may turn


def test_splits_are_disjoint_complete_and_differ_by_seed() -> None:
    first, second = splits(23, selector(validation=0.2, seeds=(5, 6)))
    for fitted, held_out in (first, second):
        assert len(held_out) == 5
        assert sorted([*fitted, *held_out]) == list(range(23))
    assert set(first[1]) != set(second[1])
    assert [len(asked) for _, asked in splits(2, selector(validation=0.9, seeds=(0,)))] == [1]
