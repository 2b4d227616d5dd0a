import gzip
import hashlib
import json
import shutil
from collections import Counter
from pathlib import Path

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headsweep.benchmarks import generated, sources
from headsweep.benchmarks.draws import draw
from headsweep.benchmarks.sources import HubDataset, read_source
from headsweep.benchmarks.templates import GSM8K
from headsweep.benchmarks.templates_math import SUBJECTS
from headsweep.config import Questions, parse
from headsweep.errors import BenchmarkError, ConfigError
from headsweep.experiments.sprint.validation import overlap
from headsweep.files.tables import QUESTIONS
from headsweep.store.revisions import resolve
from headsweep.workflow.cost import SPLIT_SIZES

MATH_KEYS = ("problem", "answer", "subject", "level", "unique_id", "solution")
MATH_ROWS = [
    dict(zip(MATH_KEYS, (*row, rf"It is $\boxed{{{row[1]}}}$."), strict=True))
    for row in (
        ("What is $1+1$?", "2", "Algebra", 1, "test/algebra/7.json"),
        ("What is $2+2$?", "4", "Geometry", None, "test/geometry/5.json"),
        ("Wie groß ist $3+3$?", "6", "Number Theory", 5, "test/number_theory/3.json"),
    )
]
GSM8K_ROWS = [
    {"question": "How many?", "answer": "Count <<1000+1=1001>>1001.\n#### 1,001"},
    {"question": "How cold?", "answer": "Very.\n#### -12"},
]


def write_jsonl(file, rows):
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def read(benchmark, file=None, split="test", **more):
    where = {"file": str(file)} if file else {}
    return read_source(Questions(benchmark=benchmark, split=split, **where, **more))


def changed(index, **values):
    """Return the MATH rows with some values of one row changed; ... removes a key."""
    rows = [dict(row) for row in MATH_ROWS]
    rows[index].update(values)
    return [{key: value for key, value in row.items() if value is not ...} for row in rows]


CSV = (
    'q,a,topic,grade\r\n"What is 1, doubled?",2,Numbers,1\r\n'
    '"Who wrote\r\n""Emma""?",Austen,Books,\r\n'
)
COLUMNS = {"question": "q", "answer": "a", "subject": "topic", "level": "grade"}


def custom(file, columns=COLUMNS, split="dev"):
    return read("custom", file, split, columns=columns)


ONE = json.dumps(MATH_ROWS[0]).encode()
NO_NUMBER = r"line 2: answer is .* ends with '#### '"
REFUSED = [
    (changed(1, answer=...), r"line 2 has no 'answer', only problem, subject, level"),
    (changed(1, answer=None), r"line 2: answer is null"),
    (changed(1, answer=""), r'line 2: answer is "", not an answer'),
    (changed(0, answer=" None "), r'line 1: answer is " None "'),
    (changed(2, problem=" "), r'line 3: problem is " ", not a non-empty text'),
    (changed(0, level=6), r"line 1: level is 6, not a number from 1 to 5"),
    (changed(0, level=True), r"line 1: level is true"),
    (changed(2, unique_id="test/algebra/7.json"), r"'test/algebra/7.json' .*line 1.*line 3"),
    ([*MATH_ROWS, [1, 2]], r"line 4 is \[1, 2\], not an object"),
    ([], r"has no questions"),
    *(([GSM8K_ROWS[0], {**GSM8K_ROWS[1], "answer": a}], NO_NUMBER) for a in ("42", "#### ,")),
    (("q.jsonl", b"\n\n{\n"), r"line 3 is not JSON"),
    (("q.jsonl", ONE + b'\n{"problem": "\xff"}\n'), r"line 2 is not JSON"),
    (("q.jsonl", b"\n \n"), "has no questions"),
    (("q.jsonl.gz", ONE), r"[Nn]ot a gzipped file"),
    (("q.xlsx", b"PK"), r"q\.xlsx is neither \.jsonl nor \.csv"),
    (("absent.jsonl", None), r"absent\.jsonl is missing"),
    (("folder.csv", ...), r"folder\.csv cannot be read \(Is a directory\)"),
    (("q.csv", b"q,a,topic\nx,1,t\n"), "line 2 has no 'grade', only q, a, topic; the columns"),
    (("q.csv", b"q,a,topic,grade\nx,1,t\n"), "line 2 has more or fewer cells than the header"),
    (("q.csv", b"q,a,topic,grade\nx,,t,2\n"), 'line 2: a is "", not a non-empty text or number'),
    (("q.csv", b"q,a,topic,grade\nx,1,t,7\n"), "line 2: grade is .*, not a number from 1 to 5"),
    (("q.csv", b"q,a,topic,grade\nx,1,Overall,2\n"), "topic is .Overall., not another name: this"),
    (("q.csv", b"q,a,topic,grade\nx,1,Level 3,2\n"), "topic is .Level 3., not another name: this"),
    (("q.csv", b'q,a,topic,grade\n"x,1,t,2\n'), "is not CSV in UTF-8"),
    (("q.csv", b"q,a,topic,grade\n\xff"), "is not CSV in UTF-8"),
    (("q.csv", b"q,a,topic,a\nx,1,t,2\n"), "line 1 names the column 'a' twice; rename one"),
    (("q.csv", b"q,a,topic,grade\nx,1,t,2\nx,NaN,t,2\n"), 'line 3: a is "NaN", not a cell with'),
    (("q.csv", b"q,a,topic,grade\nnull,1,t,2\n"), 'line 2: q is "null", not a cell with content'),
    (("q.jsonl", ONE[:-1] + b', "answer": "3"}'), "line 1 .*the key 'answer' is given twice"),
    *(
        (
            changed(1, answer=value),
            f"line 2: answer is {json.dumps(value)}, not a cell with content",
        )
        for value in (float("-inf"), " -Inf ")
    ),
    ([GSM8K_ROWS[0], {**GSM8K_ROWS[1], "answer": "#### NaN"}], NO_NUMBER),
]


def test_a_split_of_the_hub_with_a_column_twice_is_refused_by_its_name(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "hub"
    folder.mkdir()
    columns = [pa.array([value]) for value in ("How many?", "1", "2")]
    table = pa.Table.from_arrays(columns, names=["q", "gold", "gold"])
    pq.write_table(table, folder / "test-00000-of-00001.parquet")
    hub = HubDataset(str(folder), None, "0" * 40)
    with pytest.raises(BenchmarkError, match=r"^.*hub \(.*gold.*$"):
        list(sources.hub_rows(hub, "test"))


@pytest.mark.parametrize(("content", "message"), REFUSED)
def test_a_source_that_cannot_be_used_is_refused_in_one_line(tmp_path, content, message):
    name, written = content if isinstance(content, tuple) else ("q.jsonl", content)
    file = tmp_path / name
    if isinstance(written, list):
        write_jsonl(file, written)
    elif written is ...:
        file.mkdir()
    elif written is not None:
        file.write_bytes(written)
    with pytest.raises(BenchmarkError, match=message) as error:
        if name == "q.csv":
            custom(file)
        else:
            read("gsm8k" if message == NO_NUMBER else "math500", file)
    assert str(error.value).startswith(str(file))
    assert "\n" not in str(error.value)


def test_known_rows_without_answer_and_a_second_copy_are_left_out_with_a_warning(tmp_path, caplog):
    rows = changed(1, unique_id="train/number_theory/7117.json", answer="")
    rows[2] |= {"unique_id": "train/algebra/25040.json", "answer": "None"}
    kept = read("math500", write_jsonl(tmp_path / "questions.jsonl", rows))
    assert kept["question_id"].tolist() == ["test/algebra/7.json"]
    assert "left out 2 rows: train/number_theory/7117.json" in caplog.text
    assert "train/algebra/25040.json" in caplog.text
    # PRM800K gave this id twice.
    twice = {"unique_id": "test/precalculus/24307.json", "problem": "One problem"}
    rows = [MATH_ROWS[0] | twice, MATH_ROWS[1] | twice, MATH_ROWS[2]]
    kept = read("math500", write_jsonl(tmp_path / "questions.jsonl", rows))
    assert kept["source_row"].tolist() == [0, 2]
    assert "test/precalculus/24307.json (second copy)" in caplog.text
    rows[1]["problem"] = "Another problem"
    with pytest.raises(BenchmarkError, match="line 1 and again at line 2"):
        read("math500", write_jsonl(tmp_path / "questions.jsonl", rows))


KEYS = {"question_id": "unique_id", "question": "problem", "answer": "answer", "subject": "subject"}
OF_MATH = {column: [row[key] for row in MATH_ROWS] for column, key in KEYS.items()}
OF_GSM8K = {  # gold answers are numbers without commas, and ids name split and row
    "question_id": ["gsm8k/test/00000", "gsm8k/test/00001"],
    "answer": ["1001", "-12"],
    "solution": ["Count <<1000+1=1001>>1001.", "Very."],
    "subject": [None, None],
    "level": [None, None],
}


@pytest.mark.parametrize(
    ("benchmark", "name", "rows", "expected"),
    [("math500", None, MATH_ROWS, OF_MATH), ("gsm8k", "main", GSM8K_ROWS, OF_GSM8K)],
)
def test_the_hub_and_a_file_give_the_same_questions(
    benchmark, name, rows, expected, tmp_path, monkeypatch
):
    """The loader of the hub reads a folder on disk, and caches nothing outside the test."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder, inside = tmp_path / "hub", name or "."
    (folder / inside).mkdir(parents=True)
    table = pa.Table.from_pylist(rows)
    pq.write_table(table, folder / inside / "test-00000-of-00001.parquet")
    config = {"config_name": name or "default"}
    config["data_files"] = [{"split": "test", "path": f"{name}/test-*" if name else "test-*"}]
    (folder / "README.md").write_text(f"---\n{json.dumps({'configs': [config]})}\n---\n")
    hub = HubDataset(str(folder), name, "0" * 40)
    monkeypatch.setitem(sources.PINNED, benchmark, hub)
    load = datasets.load_dataset

    def fetched(*given, **named):
        data = load(*given, **named)
        data.info.download_checksums = {f"hf://datasets/{hub.path}@{hub.revision}/a": {}}
        return data

    monkeypatch.setattr(datasets, "load_dataset", fetched)  # of a folder it tells no addresses
    found = read(benchmark, write_jsonl(tmp_path / "test.jsonl", rows))
    pd.testing.assert_frame_equal(read(benchmark), found)
    assert found.columns.tolist() == QUESTIONS.columns
    assert found["source_row"].tolist() == [*range(len(rows))]
    found = found.astype(object).where(found.notna(), None)
    assert {column: found[column].tolist() for column in expected} == expected


def test_math_train_of_the_real_data_lacks_only_the_two_rows_without_answer(headsweep_data, caplog):
    rows = read("math_train", headsweep_data / "math_train.jsonl.gz", split="train")
    assert len(rows) == SPLIT_SIZES["math_train", "train"] == 11_998
    # Algebra, Intermediate Algebra, Prealgebra, Number Theory and so on.
    sizes = [2807, 2101, 1994, 1347 - 2, 1308, 1236, 1207]
    assert rows["subject"].value_counts().tolist() == sizes
    assert rows["level"].value_counts().sort_index().tolist() == [958, 2152, 2618, 2776, 3494 - 2]
    assert rows["level"].isna().sum() == 2
    assert "left out 2 rows: train/number_theory/7115.json" in caplog.text
    test_ids = read("math500", headsweep_data / "math500.jsonl")["question_id"]
    assert not set(test_ids) & set(rows["question_id"])


@pytest.mark.parametrize(
    ("grader", "answer", "message"),
    [
        ("choice", "2", 'line 1: a is "2", not the letter of a choice alone, as B'),
        ("choice", "B or C", "not the letter of a choice alone"),
        ("numeric", "twelve", "not a number alone, as the grader numeric compares"),
        ("numeric", "12 apples", "not a number alone"),
        ("numeric", r"\boxed{4}", "not a number alone"),
        ("math", "['4', '5']", "not one answer, without the brackets and quotes of a list"),
        ("numeric", "3 + 4 = 7\n#### 7", "not the final answer alone, as what stands after ####"),
        ("choice", "b", None),
        ("choice", "(B)", None),
        ("numeric", r"\frac{3}{4}", None),
        ("numeric", "-1,234.5e3", None),
        ("exact", "#### Austen", None),
    ],
)
def test_a_gold_answer_that_nothing_can_match_is_refused(grader, answer, message, tmp_path):
    write_jsonl(tmp_path / "mine.jsonl", [{"q": "How many?", "a": answer}])
    file = tmp_path / "mine.jsonl"
    columns = {"question": "q", "answer": "a"}
    if message is None:
        found = read("custom", file, "dev", columns=columns, grader=grader)
        assert found["answer"].tolist() == [answer]
        return
    with pytest.raises(BenchmarkError, match=message):
        read("custom", file, "dev", columns=columns, grader=grader)


def test_a_table_of_ones_own_becomes_a_question_table(tmp_path):
    (tmp_path / "mine.csv").write_bytes(b"\xef\xbb\xbf" + CSV.encode())
    (tmp_path / "mine.csv.gz").write_bytes(gzip.compress(CSV.encode()))
    rows = [
        {"q": "What is 1, doubled?", "a": 2, "topic": "Numbers", "grade": 1},
        {"q": 'Who wrote\r\n"Emma"?', "a": "Austen", "topic": "Books", "grade": None},
    ]
    write_jsonl(tmp_path / "mine.jsonl", rows)
    # As pandas writes whole numbers of a column with gaps.
    (tmp_path / "float.csv").write_bytes(CSV.replace(",1\r\n", ",1.0\r\n").encode())
    write_jsonl(tmp_path / "float.jsonl", [{**rows[0], "grade": 1.0}, rows[1]])
    names = ("mine.csv", "mine.csv.gz", "mine.jsonl", "float.csv", "float.jsonl")
    first, *others = (custom(tmp_path / name) for name in names)
    assert first["question"].tolist() == [row["q"] for row in rows]
    assert first["answer"].tolist() == ["2", "Austen"]
    assert first["subject"].tolist() == ["Numbers", "Books"]
    assert first["question_id"].tolist() == ["000000", "000001"]
    assert first["split"].unique().tolist() == ["dev"]
    assert first["level"].fillna(0).tolist() == [1, 0]
    assert all(other.equals(first) for other in others)


def test_a_level_that_is_no_number_is_refused_as_it_is_written(tmp_path):
    (tmp_path / "q.csv").write_bytes(CSV.replace(",1\r\n", ",v1.0\r\n").encode())
    with pytest.raises(BenchmarkError, match=r'grade is "v1\.0", not a number from 1 to 5'):
        custom(tmp_path / "q.csv")


def test_json_lines_may_begin_with_a_byte_order_mark(tmp_path):
    file = tmp_path / "q.jsonl"
    file.write_bytes(b"\xef\xbb\xbf" + ONE)
    assert len(read("math500", file)) == 1


@pytest.mark.parametrize("separator", [";", "\t"])
def test_cells_that_no_comma_parts_are_told(tmp_path, separator):
    rows = [["question", "answer"], ["What is 1 + 2?", "3"]]
    (tmp_path / "q.csv").write_text("\n".join(separator.join(row) for row in rows))
    with pytest.raises(BenchmarkError, match="line 2: semicolons or tabs part its cells; save it"):
        custom(tmp_path / "q.csv", {"question": "question", "answer": "answer"})


def test_a_cell_of_csv_may_be_long(tmp_path):
    question = "long " * 40_000
    (tmp_path / "long.csv").write_text(f"question,answer\n{question},1\n")
    assert custom(tmp_path / "long.csv", {})["question"].tolist() == [question]


def test_a_column_may_name_the_split_of_each_row(tmp_path):
    rows = [{"q": f"{n} + 1?", "a": n + 1, "fold": n % 3} for n in range(7)]
    file = write_jsonl(tmp_path / "folds.jsonl", rows)
    columns = {"question": "q", "answer": "a", "split": "fold"}
    parts = [custom(file, columns, str(fold)) for fold in range(3)]
    assert [part["answer"].tolist() for part in parts] == [["1", "4", "7"], ["2", "5"], ["3", "6"]]
    assert parts[1]["source_row"].tolist() == [1, 4]
    with pytest.raises(
        BenchmarkError, match="fold is '3'; name a split that it has: '0', '1', '2'"
    ):
        custom(file, columns, "3")
    with pytest.raises(BenchmarkError, match="has no 'part'"):
        custom(file, {**columns, "split": "part"})


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:16]


SIZED = {"generated_math": 200, "generated_gsm8k": 100}
"""The demo's sizes."""
CORPUS = "626efd31b3ae45ea"
"""Digest of the first 2,000 documents that the reasoner's recipe sees under seed 3."""


def test_shared_templates_make_the_questions_of_before():
    """Of the time before splits had templates apart; others: those that stores hold, below."""
    values = {"benchmark": "generated_gsm8k", "n": 100, "templates": "shared", "seed": 3}
    found = read_source(Questions(**values, split="train"))
    assert digest(found.to_json()) == "fa9940094ae68dd4"


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize("benchmark", SIZED)
def test_no_test_question_is_a_training_question_with_other_numbers(benchmark, seed):
    values = {"benchmark": benchmark, "n": SIZED[benchmark], "seed": seed}
    splits = [{**values, "split": split} for split in ("train", "test")]
    train, test = (read_source(Questions(**each)) for each in splits)
    assert not overlap(train, test)["resembles"].any()
    shared = (read_source(Questions(**each, templates="shared")) for each in splits)
    assert overlap(*shared)["resembles"].mean() > 0.5  # the detection would see them
    assert test["subject"].value_counts().equals(train["subject"].value_counts())
    subjects = 7 if benchmark == "generated_math" else 0
    assert test["subject"].nunique() == train["subject"].nunique() == subjects


@pytest.mark.parametrize("division", [*SUBJECTS.values(), GSM8K])
def test_about_half_of_a_subject_s_templates_serve_each_split(division):
    counts = Counter(division.values())
    assert counts.keys() == {"test", "train"}
    assert abs(counts["test"] - counts["train"]) <= 1


def test_questions_and_answers_are_those_that_stores_hold_and_the_corpus_has_others():
    """Each template was once held against answers worked out from the text by other means.

    Of these very texts every equation was found to hold, and every answer to be in lowest terms.
    """
    math = generated.generate("generated_math", "test", 350, seed=3, apart=False)
    gsm8k = generated.generate("generated_gsm8k", "train", 210, seed=3, apart=False)
    assert digest(math.to_json()) == "32b9c7135cb31330"
    assert digest(gsm8k.to_json()) == "e5b0a6eb70041272"
    fewer = generated.generate("generated_gsm8k", "train", 17, seed=3, apart=False)
    pd.testing.assert_frame_equal(fewer, gsm8k.head(17))
    documents = list(generated.corpus(5000, seed=3))
    assert digest("\n".join(text for each in documents[:2000] for text in each)) == CORPUS
    questions = [document.question for document in documents]
    apart = generated.generate("generated_math", "test", 350, seed=3, apart=True)
    assert not set(questions) & {*math.question, *gsm8k.question, *apart.question}
    word_problems = sum(question.endswith("?") and "$" not in question for question in questions)
    assert 0.2 < word_problems / 5000 < 0.5


@pytest.mark.parametrize(("apart", "sizes"), [(False, (700, 600)), (True, (670, 380))])
@pytest.mark.parametrize("benchmark", SIZED)
def test_texts_are_distinct_inside_and_across_splits(benchmark, apart, sizes):
    test = generated.generate(benchmark, "test", sizes[0], seed=0, apart=apart)
    train = generated.generate(benchmark, "train", sizes[1], seed=1, apart=apart)
    assert len({*test.question, *train.question}) == sum(sizes)


def test_more_questions_than_the_templates_can_make_are_refused(monkeypatch):
    monkeypatch.setattr(generated, "_TRIES", 100)  # after which a subject has no more to give
    with pytest.raises(BenchmarkError, match=r"n: 90000 .* ask for at most \d+$"):
        generated.generate("generated_math", "train", 90_000, seed=0, apart=False)
    with pytest.raises(BenchmarkError, match=r"ask for at most \d+, or for `templates: shared`"):
        generated.generate("generated_math", "train", 90_000, seed=0, apart=True)


SIZES = (31, 29, 23, 19, 17, 11, 5)
"""Questions in each of seven well separated groups."""


@pytest.fixture
def split():
    groups = np.random.default_rng(0).permutation(np.repeat(np.arange(len(SIZES)), SIZES))
    ids = [f"test/{index}" for index in range(len(groups))]
    levels = [None if index % 11 == 0 else index % 3 for index in range(len(groups))]
    return pd.DataFrame({"question_id": ids, "subject": groups.astype(str), "level": levels})


@pytest.fixture
def vectors(split):
    """Embeddings [questions, 13]: a point for each group, and a little noise."""
    noise = np.random.default_rng(1).normal(scale=0.01, size=(len(split), 13))
    return (10 * np.eye(13)[split["subject"].astype(int)] + noise).astype(np.float32)


def asking(n, sampling="uniform", seed=0):
    how = {"n": n, "sampling": sampling, "seed": seed}
    how |= {"embedder": "any"} if sampling == "clusters" else {}
    return Questions(benchmark="math500", split="test", **how)


@pytest.mark.parametrize("sampling", ["first", "uniform", "clusters", "stratified"])
def test_growing_n_keeps_the_questions_drawn_before(split, vectors, sampling):
    pd.testing.assert_frame_equal(draw(split, asking(None, sampling), None), split)
    before = set()
    for n in (1, 2, 7, 20, 61, len(split)):
        now = set(draw(split, asking(n, sampling), vectors)["question_id"])
        assert before < now
        before = now
    with pytest.raises(BenchmarkError, match=r"136 questions .* has 135; lower n"):
        draw(split, asking(136, sampling), vectors)


def test_the_seed_decides_the_draw_and_not_the_order_of_the_source(split, vectors):
    for sampling in ("uniform", "clusters", "stratified"):
        drawn = [draw(split, asking(30, sampling, seed), vectors) for seed in (0, 0, 1, 2)]
        first, again, *others = (frozenset(rows["question_id"]) for rows in drawn)
        assert first == again and len({first, *others}) == 3
    drawn = draw(split.iloc[::-1], asking(40), None)
    assert set(drawn["question_id"]) == set(draw(split, asking(40), None)["question_id"])


def test_clusters_give_the_same_number_until_they_run_out(split, vectors):
    drawn = draw(split, asking(7 * 7, "clusters"), vectors)
    # Turns 1 to 5 take one from each of seven; the smallest is then empty, so 14 more come from
    # the six others: two from each, and two from the first two.
    taken = drawn["subject"].value_counts()
    assert taken.pop("6") == 5
    assert sorted(taken) == [7, 7, 7, 7, 8, 8]


@pytest.mark.parametrize("n", [1, 20, 61, 134])
def test_a_stratified_draw_has_of_every_subject_and_level_its_share(split, n):
    drawn = draw(split, asking(n, "stratified"), None)
    for columns in (["subject", "level"], ["subject"], ["level"]):
        sizes = split.groupby(columns, dropna=False).size()
        taken = drawn.groupby(columns, dropna=False).size().reindex(sizes.index, fill_value=0)
        strata = len(split.groupby(["subject", "level"], dropna=False)) / len(sizes)
        assert (taken - n * sizes / len(split)).abs().max() <= strata


def test_the_number_of_clusters_is_the_config_s(split, vectors):
    two = split["subject"].isin(["0", "6"])  # 31 and 5 questions
    rows, places = split[two].reset_index(drop=True), vectors[two.to_numpy()]
    asked = Questions(**asking(8, "clusters").model_dump() | {"clusters": 2})
    assert sorted(draw(rows, asked, places)["subject"].value_counts()) == [4, 4]


@pytest.mark.parametrize("name", ["csv", "json", "parquet", "text", "./mine", "../mine", "a/b/c"])
def test_a_dataset_that_would_be_read_from_the_working_folder_is_refused(name):
    section = {"benchmark": "custom", "split": "train", "dataset": name, "revision": "0" * 40}
    config = parse({"run": "mine", "questions": {"own": section}})
    with pytest.raises(ConfigError, match=r"^questions.own.dataset: .* names no owner; write the"):
        resolve(config)


def test_a_folder_named_as_a_dataset_of_the_hub_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("owner/name").mkdir(parents=True)
    Path("owner/name/train.csv").write_text("question,answer\nWhy?,1\n")
    section = {"benchmark": "custom", "split": "train", "dataset": "owner/name"}
    config = parse({"run": "mine", "questions": {"own": section | {"revision": "0" * 40}}})
    with pytest.raises(ConfigError, match=r"'owner/name' is a folder here, too; write the"):
        resolve(config)


def test_a_cache_of_another_revision_is_not_read(tmp_path, monkeypatch):
    """Without network the library takes the newest that is cached, whatever is asked for."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    (tmp_path / "q.csv").write_text("question,answer\nWhy?,1\n")
    made = datasets.load_dataset("csv", data_files=str(tmp_path / "q.csv"), split="train")
    cached = tmp_path / "cache/owner___name/default/0.0.0" / ("b" * 40)
    shutil.copytree(Path(made.cache_files[0]["filename"]).parent, cached)
    for file in cached.glob("csv-*"):
        file.rename(cached / file.name.replace("csv-", "name-"))
    info = json.loads((cached / "dataset_info.json").read_text())
    info |= {"builder_name": "csv", "dataset_name": "name", "config_name": "default"}

    def cached_from(*addresses):
        sums = {address: {"num_bytes": 1, "checksum": None} for address in addresses}
        (cached / "dataset_info.json").write_text(json.dumps(info | {"download_checksums": sums}))
        hub = HubDataset("owner/name", None, "a" * 40)
        return [row for _, row in sources.hub_rows(hub, "train")]

    right = f"hf://datasets/owner/name@{'a' * 40}/q.csv"
    assert cached_from(right) == [{"question": "Why?", "answer": 1}]
    for wrong in ([right.replace("@a", "@b")], [right, str(tmp_path / "q.csv")], []):
        with pytest.raises(BenchmarkError, match=r"^owner/name: the cache has .*, not revision aa"):
            cached_from(*wrong)
