import re
import signal

import pyarrow as pa
import pytest
import yaml

from example_config import STUDIES, VALUES, changed
from headsweep.config import Config, load, parse
from headsweep.config.compression import Compression
from headsweep.config.questions import MOST_SAMPLES
from headsweep.errors import ConfigError, HeadsweepError
from headsweep.files.tables import ANSWERS, GRADED
from headsweep.store.keys import key
from headsweep.store.layout import Store
from headsweep.store.map_scores import head_batches_elsewhere
from headsweep.workflow.plan import describe

WORDS = "compressions/words"
WIDTH = {"encoder": {"width": 100}}
FRONTIER = {"model": "big", "train": "train", "test": "test", "sampling": ["T0.6"]}


OFFICIAL = {"dataset": "generated", "n": 90, "partition": {"protocol": "official"}}
ONE_GROUP = VALUES["models"]["big"] | {"kv_heads": 1}
MAP = {"model": "big", "questions": "train"}
TOP = VALUES["sweeps"]["table"] | {"heads": {"sweep": "table", "top": 1, "outcome": "solutions"}}


def frontier(**keys):
    return "frontiers/math", FRONTIER | keys


def custom(**keys):
    own = {"benchmark": "custom", "split": "dev", "columns": {"question": "q"}}
    return "questions/mine", own | keys


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("colour", 1, r"unknown key 'colour'; allowed here: comparisons, compressions,"),
        ("models/tiny/train", None, r"unknown key 'models.tiny.train'; .*batch_size"),
        ("run", ..., r"key 'run' is missing"),
        (
            "sweeps/math",
            {"model": "tiny", "questions": "test", "layer": [1]},
            r"unknown key 'sweeps.math.layer' .did you mean 'layers'.*and 1 more.$",
        ),
        ("run", "a/b", r"run: use letters, .* and single '-' .*, not 'a/b'"),
        ("models/big/device", "gpu", r"big.device: use auto, cpu, cuda, .*, not 'gpu'"),
        ("questions/test/split", "a b", r"test.split: use letters, digits and '_', not 'a b'"),
        ("run", "store", r"run: results/store is taken"),
        ("models/big/layers", "many", r"models.big.layers: .*valid integer, not 'many'"),
        ("models/big/kv_heads", 5, r"models.big: 12 heads cannot share 5 kv_heads evenly"),
        ("questions/test/split", "train", r"questions.test: math500 has only split 'test'"),
        ("questions/train/sampling", "clusters", r"`embedder` and `sampling: clusters` go toge"),
        ("questions/train/clusters", 5, r"`clusters` belongs to sampling: clusters, not uniform"),
        ("questions/test/benchmark", "generated_math", r"questions.test: .* is generated: give"),
        ("questions/test/templates", "shared", r"`templates` belongs to generated .*, not math500"),
        ("questions/test/templates", "both", r"templates: .*'apart' or 'shared', not 'both'"),
        ("decodings/greedy/samples", 2, r"decodings.greedy: temperature 0 is greedy"),
        ("decodings/T0.6/temperature", float("inf"), r"T0.6.temperature: .*finite number"),
        ("decodings/T0.6/samples", 40_000, r"T0.6.samples: .*less than or equal to 32768, not 400"),
        ("decodings/T0.6/samples", 15, r"selectors.math: .* 15 samples, fewer than max_n = 16"),
        ("embedders/minilm/model", "tiny", r"embedders.minilm: give either `source` or `model`"),
        ("sweeps/table/model", "gpt", r"sweeps.table.model: 'gpt' is not defined; there is tiny"),
        (
            "sweeps/table/layers",
            [28],
            r"table.layers: \[28\]; big has 28 layers; choose from 0 to 27",
        ),
        ("sweeps/table/heads", [3, 12], r"heads: \[3, 12\]; big has 12 heads; choose from 0 to 11"),
        ("sweeps/table/layers", [], r"sweeps.table.layers: \[\]; big has 28 layers"),
        ("sweeps/table/layers", [0, -1], r"sweeps.table.layers.1: .*or equal to 0, not -1"),
        ("sweeps/table/decoding", "T0.6", r"sweeps.table.decoding: 'T0.6' samples; pruned heads"),
        ("selectors/math/test", "train", r"selectors.math: train and test are both 'train'"),
        ("comparisons/math/decodings", ["greedy", "T0.6"], r"comparisons.math.decodings: 'T0.6'"),
        (f"{WORDS}/solver", "huge", r"words.solver: 'huge' is not defined; there is tiny, base"),
        (f"{WORDS}/model", "big", r"give either `solver` with `data`, or `model`"),
        (f"{WORDS}/arms", ["whole"], r"arms: 'whole' is not known; there is baseline,"),
        ("compressions/own/arms", [], r"`arms` and `variations` are both empty; name an arm"),
        (f"{WORDS}/arms", ["full", "full"], r"arms: 'full' stands twice"),
        ("models/TopHeads", 3, r"models.TopHeads: Input should be a valid dictionary .*, not 3"),
        ("sweeps/table/layers", {"map": "a"}, r"table.layers: Input should be a list, not {'map'"),
        ("selectors/math/heads", {"map": "a"}, r"math.heads: Input should be a list, not {'map'"),
        ("selectors/math/redraws", True, r"redraws: Input should be a valid integer, not True"),
        ("decodings/T0.6/top_p", True, r"top_p: Input should be a number, not True"),
        ("models/big/layer_heads", [], r"layer_heads: \[\]; give each of 28 layers 1 to 12"),
        (f"{WORDS}/measured", [], r"words.measured: .* at least 1 item"),
        (f"{WORDS}/tokens", [40, 513], r"tokens: 513; an encoder from scratch reads at most 512"),
        ("models/big/layer_heads", [8], r"layer_heads: \[8\]; give each of 28 layers 1 to 12"),
        (f"{WORDS}/seeds", [4, 4], r"seeds: 4 stands twice; name it once"),
        ("selectors/math/seeds", [0, 1, 0], r"math.seeds: 0 stands twice; name it once"),
        ("selectors/math/sampling", ["T0.6"] * 2, r"math.sampling: 'T0.6' stands twice"),
        ("comparisons/math/decodings", ["greedy"] * 2, r"decodings: 'greedy' stands twice"),
        ("maps/a", MAP | {"sampling": ["T0.6"] * 2}, r"maps.a.sampling: 'T0.6' stands twice"),
        (*frontier(families=["head", "head"]), r"families: 'head' stands twice"),
        (*frontier(families=["head"], scales={"scaled": [50]}), r"'scaled' is not among its fami"),
        ("sweeps/table/noise_placebos", 3, r"table: `noise_placebos` belongs to .* not none"),
        ("sweeps/top", TOP, r"heads.outcome: 'solutions' belongs to a map; a sweep ranks"),
        ("sweeps/table/layers", 3, r"sweeps.table.layers: Input should be a list, not 3"),
        ("sweeps/table/layers", [3, 5, 3], r"sweeps.table.layers: \[3, 5, 3\] names one twice"),
        ("sweeps/table/heads", [0, 0], r"sweeps.table.heads: \[0, 0\] names one twice"),
        ("decodings/T0.6/temperature", True, r"temperature: Input should be a number, not True"),
        ("sweeps", {False: {}}, r"sweeps: YAML reads a name there as False; write it in quotes"),
        ("solvers/tiny/encoder", {"heads": 48}, r"tiny: encoder.width 128 cannot .* 48 heads"),
        (f"{WORDS}/variations", {"a": {"of": ["full"]}}, r"variations.a.of: \['full'\] is not"),
        (f"{WORDS}/int8", ["random"], r"int8: 'random' is not known; there is baseline, full,"),
        (f"{WORDS}/variations", {"full": {}}, r"variations.full is an arm's name"),
        (f"{WORDS}/variations", {"a": {"speed": 1}}, r"unknown key 'variations.a.speed'; allowed"),
        (f"{WORDS}/variations", {"a": {"ratio": 2}}, r"variations.a.ratio: .* less than 1"),
        (f"{WORDS}/variations", {"a": {"ratio": 0.25}}, r"'a' does what 'full' does; remove one"),
        (f"{WORDS}/method", {"importance": {"alpha": False}}, r"alpha: Input should be a number"),
        (f"{WORDS}/method", {"ratio": 0.04}, r"full: ratio 0.04 removes nothing of 24 heads"),
        (f"{WORDS}/method", {"ratio": 0.92}, r"leaves a layer without heads: of 24, 21 can go"),
        (f"{WORDS}/method/importance", {"a": 1}, r"unknown key '.*importance.a'; .*: alpha, batch"),
        (f"{WORDS}/method", {"rounds": 0, "ratio": 0.0}, r"_scratch': method: 0 rounds leave the"),
        ("compressions/own/arms", ["small_from_scratch"], r"a model has no recipe from scratch"),
        ("compressions/own/method", {"ratio": 0.01}, r"ratio 0.01 removes nothing of 336 heads, "),
        ("models/big", ONE_GROUP, r"own, .*: ratio 0.25 leaves a layer without .* 12 of 12 go"),
        ("problems/made", OFFICIAL, r"problems.made: .* no official split; set `partition: {prot"),
        ("solvers/base/profile", "tiny", r"solvers.base: profile 'tiny' is an encoder from scra"),
        ("sweeps/compression_x", VALUES["sweeps"]["table"], r"is the table of compressions"),
        ("sweeps/claims", VALUES["sweeps"]["table"], r"claims: tables/claims.csv is the table"),
        ("selectors/math/versus", "luck", r"versus: 'luck' is not compared .*T0.6, greedy cover"),
        (*frontier(families=["head", "tail"]), r"'tail' is no family; there are head, noise, sca"),
        (*frontier(scales={"scaled": []}), r"scales.scaled: .* at least 1 item"),
        (*frontier(scales={"replay": [2]}), r"'replay' is no family"),
        (*frontier(scales={"head": [50]}), r"scales: 'head' has none; scaled, weights have"),
        (*frontier(scales={"scaled": [50, 100]}), r"scales: scaled of 100 changes nothing"),
        (*frontier(train="test"), r"train and test are both 'test'; test on questions that nothin"),
        (*frontier(layers=[3, 28]), r"layers: \[3, 28\]; big has 28 layers; choose from 0 to 27"),
        (*frontier(max_n=9), r"max_n = 9 exceeds members = 8"),
        (*frontier(members=17), r"decoding 'T0.6' has 16 samples, fewer than members = 17"),
        (*frontier(decoding="T0.6"), r"decoding: 'T0.6' samples; pruned heads"),
        ("models/big/title", "\ud800", r"title: .*holds half of a character; write it whole"),
        (*custom(), r"a custom benchmark has a `file` or a `dataset`"),
        (*custom(file="a.csv", dataset="me/mine"), r"and not both"),
        (*custom(file="a.csv", subset="main"), r"`subset` is a part of a `dataset`"),
        (*custom(file="a.csv", grader="guess"), r"Input should be 'math', 'numeric'"),
        (*custom(file="a.csv", columns={"prompt": "q"}), r"key 'questions.mine.columns.prompt'"),
        (*custom(file="a.csv", benchmark="gsm8k", split="test"), r"`columns` belongs to bench"),
    ],
)
def test_a_bad_value_is_refused_in_one_line_that_names_it(path, value, message):
    with pytest.raises(ConfigError, match=message) as error:
        parse(changed(STUDIES, path, value), "my.yaml")
    assert str(error.value).startswith("my.yaml: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("columns", "are_apart"),
    [(({}, {}), False), (({"split": "part"}, {}), False), (({"split": "part"},) * 2, True)],
)
def test_a_split_of_a_file_is_real_only_where_a_column_names_it(columns, are_apart):
    mine = {"benchmark": "custom", "file": "mine.csv", "n": 9}
    train, test = ({**mine, "split": "ab"[i], "columns": columns[i]} for i in range(2))
    values = changed(VALUES, "questions", {"train": train, "test": test, "again": test | {"n": 5}})
    maps = {"seen": {"model": "big", "questions": "train", "sampling": ["T0.6"]}}
    found = parse(values | {"selectors": {}, "maps": maps})
    assert [batch.questions for batch in head_batches_elsewhere(Store(found), "seen")] == (
        ["test"] if are_apart else []
    )
    heads = {"sweeps/chosen": {**VALUES["sweeps"]["table"], "heads": {"map": "seen", "top": 1}}}
    heads |= {"selectors/math/layers": [3], "frontiers/math": FRONTIER}
    for path, value in heads.items():
        asked = changed(values | {"maps": maps}, path, value)
        if path != "selectors/math/layers":
            asked["selectors"] = {}
        if are_apart:
            parse(asked)
            continue
        with pytest.raises(ConfigError, match=r"drawn from mine\.csv; .*columns\.split"):
            parse(asked)
    with pytest.raises(ConfigError, match=r"train 'again' and test 'test' are both drawn from min"):
        parse(changed(values, "selectors/math/train", "again"))


def test_only_heads_are_compared_where_vllm_answers():
    values = changed(VALUES, "models/big/backend", "vllm")
    with pytest.raises(ConfigError, match=r"families: .*\.big has backend vllm, which prunes"):
        parse(changed(values, "frontiers/math", FRONTIER))
    served = ["head", "scaled", "skip"]
    parse(changed(values, "frontiers/math", {**FRONTIER, "families": served}))


def test_what_ends_answers_fits_what_answers():
    config_with_stop = changed(VALUES, "decodings/greedy/stop", ["Q:"])
    with pytest.raises(ConfigError, match=r"decodings\.greedy has `stop`, and models\.big backend"):
        parse(changed(config_with_stop, "models/big/backend", "vllm"))
    parse(config_with_stop)
    for template, count in (("Answer.", 0), ("{question}{question}", 2)):
        with pytest.raises(ConfigError, match=f"stands in it {count} times; write it once"):
            parse(changed(config_with_stop, "decodings/greedy/template", template))


def test_a_model_is_spread_over_gpus_by_vllm_alone_a_divisor_of_its_heads():
    spread = changed(VALUES, "models/big/tensor_parallel", 2)
    with pytest.raises(ConfigError, match="tensor_parallel: 2, but only backend vllm spreads"):
        parse(spread)
    spread = changed(spread, "models/big/backend", "vllm")
    heads = parse(spread).models["big"].heads
    with pytest.raises(ConfigError, match=f"tensor_parallel: 5 does not divide {heads} heads"):
        parse(changed(spread, "models/big/tensor_parallel", 5))
    with pytest.raises(ConfigError, match="tensor_parallel: 2 takes several GPUs, not cuda:1;"):
        parse(changed(spread, "models/big/device", "cuda:1"))
    alone = parse(changed(VALUES, "models/big/backend", "vllm"))
    assert key(parse(spread), "models", "big") == key(alone, "models", "big"), "only speed"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xfe", "is not YAML"),
        (b"", "holds no keys; name another"),
        (b"- a\n", "holds no keys"),
        (b"run: x\nmodels: &models {big: *models}\n", "its aliases stand for more than 100000"),
        (b"run: 007\n", "line 1: 007 means 7 in YAML; write 7, or a text in quotes"),
        (b"run: 12:30\n", "line 1: 12:30 means 750 in YAML"),
        (b'run: !!int ""\n', r"is not YAML: a text does not fit its tag"),
    ],
)
def test_a_file_that_is_no_config_is_refused_in_one_line(tmp_path, content, message):
    (tmp_path / "my.yaml").write_bytes(content)
    with pytest.raises(ConfigError, match=message) as error:
        load(tmp_path / "my.yaml")
    assert "\n" not in str(error.value)
    with pytest.raises(ConfigError, match=r"no\.yaml cannot be read: No such file"):
        load(tmp_path / "no.yaml")


def test_words_that_yaml_reads_as_no_text_are_understood(tmp_path):
    file = tmp_path / "my.yaml"
    text = yaml.safe_dump(changed(STUDIES, "run", 20261126))
    text = text.replace("  big:", "  big:\n    graphs: off")
    file.write_text(text, encoding="utf-8")
    config = load(file)
    assert config.run == "20261126" and config.models["big"].graphs == "off"
    training = parse(changed(STUDIES, "solvers/tiny/training", {"precision": False}))
    assert training.solvers["tiny"].training.precision == "no"


def test_of_several_files_the_last_value_counts(tmp_path):
    files = [tmp_path / "one.yaml", tmp_path / "other.yaml"]
    files[0].write_text(yaml.safe_dump(STUDIES), encoding="utf-8")
    other = {"run": "both", "models": {"big": {"batch_size": 7}}}
    files[1].write_text(yaml.safe_dump(other), encoding="utf-8")
    expected = changed(changed(STUDIES, "run", "both"), "models/big/batch_size", 7)
    assert load(*files) == parse(expected)


def test_the_last_of_the_most_samples_fits_into_the_tables():
    for schema in (ANSWERS.schema, GRADED.schema):
        pa.array([MOST_SAMPLES - 1], schema.field("sample").type)
        with pytest.raises(pa.ArrowInvalid):
            pa.array([MOST_SAMPLES], schema.field("sample").type)


SHAPES = [(7, 4, 4), (7, 7, 7), (14, 2, 2), (96, 96, 32), (100, 99, 99), (28, 12, 2)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("ratio", [1e-6, 0.999999])
def test_the_ratio_that_a_refusal_advises_is_possible(shape, ratio):
    with pytest.raises(ValueError, match=f"ratio {ratio:g}") as error:
        Compression(ratio=ratio).check_shape(*shape)
    (advised,) = re.findall(r"(?:raise|lower) it to (\S+)", str(error.value))
    Compression(ratio=float(advised)).check_shape(*shape)


def test_a_ratio_of_one_head_is_possible_however_it_is_rounded():
    assert 49 * (1 / 49) < 1
    Compression(ratio=1 / 49).check_shape(7, 7, 7)


def test_the_baseline_is_not_trained_from_scratch_where_the_method_is():
    scratch = {"scratch": True, "distillation": {"teacher": "none"}}
    values = changed(STUDIES, f"{WORDS}/method", scratch)
    values = changed(values, f"{WORDS}/arms", ["baseline", "full"])
    settings = parse(values).compressions["words"].settings
    assert (settings["baseline"].scratch, settings["full"].scratch) == (False, True)


def test_a_profile_follows_its_dataset_and_is_changed_by_other_keys():
    tiny = parse(STUDIES).solvers["tiny"]
    assert (tiny.on("asdiv_a").depth, tiny.on("math23k").depth) == (4, 10)
    assert (tiny.on("asdiv_a").training.epochs, tiny.on("asdiv_a").encoder.heads) == (9, 8)


def test_a_profile_s_own_shape_is_what_keys_of_its_encoder_change():
    narrow = parse(changed(STUDIES, "solvers/tiny", {"profile": "fixture", **WIDTH}))
    shape = narrow.solvers["tiny"].on("asdiv_a").encoder
    assert (shape.width, shape.heads) == (100, 4)  # not the 8 heads of an encoder without a profile


def test_an_arm_that_does_not_fit_the_method_is_named():
    values = changed(STUDIES, "compressions/own/arms", ["full", "feature_distillation"])
    values = changed(values, "compressions/own/method", {"distillation": {"feature": "none"}})
    with pytest.raises(ConfigError) as error:
        parse(values)
    said = "compressions.own: arm 'feature_distillation': method.distillation: the teacher teach"
    assert said in str(error.value)


@pytest.mark.parametrize(
    "key", ["geometry", "dimension", "diversity", "weight_decay", "shortlist", "epochs"]
)
def test_one_value_is_a_list_of_one(key):
    value = "ball" if key == "geometry" else 3
    selector = parse(changed(VALUES, f"selectors/math/{key}", value)).selectors["math"]
    assert getattr(selector, key) == (value,)


def test_every_key_is_described():
    schema = Config.model_json_schema()
    for section in [schema, *schema["$defs"].values()]:
        assert all("description" in value for value in section["properties"].values())


DOUBLED = "a0: &a0 [x, x]\n" + "".join(
    f"a{level}: &a{level} [*a{level - 1}, *a{level - 1}]\n" for level in range(1, 40)
)
MERGED = "a0: &a0 {x: 1}\n" + "".join(
    f"a{level}: &a{level} {{<<: [*a{level - 1}, *a{level - 1}]}}\n" for level in range(1, 40)
)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (DOUBLED, "its aliases stand for more than 100000 values; write it without them"),
        (MERGED, "its aliases stand for more than 100000 values"),
        ("run: " + "1:" * 100_000 + "1", "is too long for what is no text"),
        ("run: " + "1:" * 100_000 + "1.5", "is too long for what is no text"),
        ("run: !!float " + "9" * 200_000, "is too long for what is no text"),
        ("run: 0x" + "f" * 200_000, "is too long for what is no text"),
        ("run: !!timestamp 2026-99-99", "is not YAML"),
        ("run: !!float 1:" + "1:" * 48 + "1e308", "is not YAML|run: "),
        ("run: " + "x" * 300_000, "it has 300005 characters; 300000 are allowed"),
    ],
    ids=lambda value: value[:12],
)
def test_a_short_file_whose_reading_would_never_end_is_refused(tmp_path, content, message):
    (tmp_path / "my.yaml").write_text(content)
    signal.alarm(300)
    try:
        with pytest.raises(ConfigError, match=message) as error:
            load(tmp_path / "my.yaml")
    finally:
        signal.alarm(0)
    assert "\n" not in str(error.value)


def huge_numbers(values, where=""):
    """Yield where whole numbers and fractions stand in a config, and what is too large there."""
    for name, value in values.items() if isinstance(values, dict) else ():
        path = f"{where}/{name}".lstrip("/")
        if isinstance(value, dict):
            yield from huge_numbers(value, path)
        elif type(value) in (int, float):
            yield path, 10**400
            if type(value) is float:
                yield path, 1e308


@pytest.mark.parametrize(("where", "huge"), [*huge_numbers(VALUES)])
def test_a_huge_number_ends_in_a_config_or_a_line(where, huge):
    signal.alarm(300)
    try:
        describe(Store(parse(changed(VALUES, where, huge))))
    except HeadsweepError as error:
        assert "\n" not in str(error)
    finally:
        signal.alarm(0)
