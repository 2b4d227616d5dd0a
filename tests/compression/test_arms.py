"""The arms of the ablation differ in what their names say."""

import pytest
from pydantic import ValidationError

from headroom.config.compression import Compression, Importance, Training
from headroom.config.study import ARMS, arm, changed
from headroom.errors import ConfigError

METHOD = Compression(
    ratio=0.4,
    start=0.1,
    rounds=3,
    importance=Importance(entropy_sign=-1, calibration=77),
    training=Training(epochs=9, patience=None, batch_size=5),
)


def flat(settings: Compression) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in settings.model_dump().items():
        inner = value if isinstance(value, dict) else {"": value}
        found |= {f"{name}.{key}".rstrip("."): one for key, one in inner.items()}
    return found


@pytest.mark.parametrize(
    ("name", "differing"),
    [
        ("baseline", {"ratio": 0.0, "start": 0.0, "rounds": 0}),
        ("pruning_only", {"distillation.teacher": "none"}),
        ("without_entropy", {"distillation.teacher": "none", "importance.alpha": 1.0}),
        ("without_norm", {"distillation.teacher": "none", "importance.alpha": 0.0}),
        (
            "response_distillation",
            {"distillation.teacher": "original", "distillation.feature": "none"},
        ),
        (
            "feature_distillation",
            {"distillation.teacher": "original", "distillation.response": False},
        ),
        ("random", {"schedule": "one_shot", "importance.criterion": "random"}),
        ("global", {"schedule": "one_shot"}),
        (
            "attention_visualisation",
            {"schedule": "one_shot", "importance.criterion": "attention"},
        ),
        ("distillation_only", {"ratio": 0.0, "start": 0.0}),
        ("full", {}),
        ("joint_single_teacher", {"distillation.teacher": "original"}),
        ("small_from_scratch", {"distillation.teacher": "none", "scratch": True}),
        ("trained_on", {"distillation.teacher": "none", "ratio": 0.0, "start": 0.0}),
    ],
)
def test_an_arm_changes_what_its_name_says(name, differing):
    whole, found = flat(METHOD), flat(arm(name, METHOD))
    assert {key: value for key, value in found.items() if value != whole[key]} == differing


def test_there_are_fourteen_arms_and_all_go_with_the_literal_reading():
    reading = {"importance": {"entropy": "raw", "scale": "raw"}, "schedule": "literal"}
    literal = changed(METHOD.model_copy(update={"smallest": 1000}), reading)
    assert literal.importance.scale == "raw" and literal.importance.entropy_sign == -1
    assert literal.schedule == "literal" and literal.training == METHOD.training
    settings = [arm(name, literal) for name in ARMS]
    assert len(settings) == 14
    assert [one.schedule for one in settings].count("one_shot") == 3


def test_what_decides_nothing_is_not_decisive():
    def keyed(**changes) -> dict[str, object]:
        return Compression(**{"ratio": 0.4, **changes}).decisive()

    apart, fewer = {"scope": "layer"}, {"batch_size": 3}
    assert keyed(importance=fewer) == keyed(training={"checkpoint_steps": 7}) == keyed()
    assert keyed(scratch_rate=1e-3, scratch_times=2) == keyed()  # of an arm that is pruned
    lone = {"scratch": True, "distillation": {"teacher": "none"}}
    assert keyed(**lone, scratch_times=2) != keyed(**lone) != keyed(**lone, scratch_rate=1e-3)
    # Ranks of layers are kept over removals, which once they were not: those keys are new.
    for changes in ({}, {"schedule": "literal"}, {"schedule": "one_shot"}, {"rounds": 1}):
        ranks = keyed(importance=apart, **changes)["importance"].get("ranks")
        assert bool(ranks) == (changes in ({}, {"schedule": "literal"}))


def test_an_arm_that_is_not_known_is_one_clear_line():
    with pytest.raises(ConfigError, match="arm 'best' is not known; arms are baseline, pruning_"):
        arm("best", METHOD)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ratio": 0.2, "start": 0.3}, "start 0.3 is above ratio 0.2"),
        ({"rounds": 0}, "0 rounds remove nothing"),
        ({"training": {"epochs": 3}}, "3 epochs cannot be divided over 4 rounds"),
        ({"smallest": 5}, "need `schedule: literal`"),
        ({"largest_loss": 0.0}, "need `schedule: literal`"),
        ({"scratch": True}, "weights from scratch have no teacher"),
        ({"ratio": 1.0}, "less than 1"),
        ({"importance": {"alpha": 1.2}}, "less than or equal to 1"),
        ({"distillation": {"response": False, "feature": "none"}}, "the teacher teaches nothing"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings, message):
    with pytest.raises(ValidationError, match=message):
        Compression(**settings)
