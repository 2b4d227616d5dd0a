"""Which texts a map scores."""

import pandas as pd
import pytest
import tiny_models
from test_map_run import mapping

from headsweep.benchmarks import prompts
from headsweep.errors import ModelError, TableError
from headsweep.experiments.maps import known_texts
from headsweep.experiments.maps.known_texts import choose_texts, read_texts, write_texts
from headsweep.files.record import read_record
from headsweep.files.safe_files import write_table
from headsweep.files.tables import ANSWERS, QUESTIONS, TEXTS
from headsweep.models.load import load_tokenizer
from headsweep.models.source import BUILTIN
from headsweep.store.layout import Store
from headsweep.store.map_scores import texts_key

FOLDER = BUILTIN["builtin:reasoner"]
SAMPLES = {
    # Of each question: right?, how it ended, token ids; by decoding.
    "T0.6": {
        "both": [(False, "length", [4]), (True, "eos", [5, 6]), (False, "eos", [7]),
                 (True, "eos", [8])],
        "cut": [(True, "eos", [9])] + [(False, "length", [10])] * 3,
        "right": [(True, "eos", [12])] * 4,
        "empty": [(True, "eos", [14]), (False, "eos", []), (True, "eos", [15]), (False, "eos", [])],
        "late": [(True, "eos", [20]), (False, "eos", [21])] * 2,
    },
    "T0.9": {
        "both": [(True, "eos", [30]), (False, "eos", [31])],
        "cut": [(False, "eos", [32, 33, 34]), (True, "eos", [35])],
        "right": [(True, "eos", [36]), (True, "eos", [37])],
        "empty": [(True, "eos", [38]), (True, "eos", [39])],
        "late": [(True, "eos", [40]), (False, "eos", [41])],
    },
}  # fmt: skip
SOLUTIONS = {"both": "So 3 plus 4 is 7.", "right": " ", "cut": None, "empty": None, "late": "7"}


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(known_texts, "FEWEST", 2)  # fewer than a test takes
    config = mapping()
    decodings = {"T0.9": config.decodings["T0.6"].model_copy(update={"temperature": 0.9})}
    known = config.maps["known"].model_copy(update={"sampling": ("T0.6", "T0.9"), "n": 4})
    config = config.model_copy(
        update={"decodings": config.decodings | decodings, "maps": {"known": known}}
    )
    rows = pd.DataFrame({"question_id": list(SOLUTIONS), "solution": list(SOLUTIONS.values())})
    rows = rows.assign(split="train", subject=None, level=None, question="3 + 4?", answer="7")
    path = Store(config).path
    write_table(path(QUESTIONS, questions="math_train"), rows.assign(source_row=0), QUESTIONS)
    for decoding, samples in SAMPLES.items():
        names = {"model": "reasoner", "decoding": decoding, "questions": "math_train"}
        answers = pd.DataFrame(
            (question, sample, tokens, end, right)
            for question, own in samples.items()
            for sample, (right, end, tokens) in enumerate(own)
        )
        answers.columns = ["question_id", "sample", "token_ids", "stop_reason", "correct"]
        said = answers.pop("correct").map({True: r"\boxed{7}", False: r"\boxed{8}"})
        answers = answers.assign(margin=0.5, text=said).sample(frac=1, random_state=2)
        file = path(ANSWERS, variant="base", **names)
        write_table(file, answers, ANSWERS)
    return config


def test_first_right_and_wrong_samples_of_one_decoding_that_the_model_ended(config):
    # The store alone is read: scores, which it shares, must not depend on a run's files.
    chosen, counts = choose_texts(Store(config), "known", FOLDER)
    found = {(text.question_id, text.kind): text.tokens for text in chosen}
    solution = found.pop(("both", "solution"))
    assert load_tokenizer(FOLDER).decode(solution) == "So 3 plus 4 is 7."
    # `late` is the fifth of four questions; `right` has no wrong sample, `empty` an empty one.
    assert found == {
        ("both", "right"): (5, 6),
        ("both", "wrong"): (7,),
        ("cut", "right"): (35,),
        ("cut", "wrong"): (32, 33, 34),
    }
    assert counts == {"questions": 4, "pairs": 2, "solutions": 1}
    assert len({text.prompt for text in chosen}) == 1


def test_a_solution_that_the_model_has_no_positions_for_is_left_out(config, caplog):
    texts, _ = choose_texts(Store(config), "known", FOLDER)
    (solution,) = [text for text in texts if text.kind == "solution"]
    whole = len(solution.prompt) + len(solution.tokens)
    assert choose_texts(Store(config), "known", FOLDER, whole)[1]["solutions"] == 1
    assert "left out" not in caplog.text
    _, fewer = choose_texts(Store(config), "known", FOLDER, whole - 1)
    assert fewer == {"questions": 4, "pairs": 2, "solutions": 0}
    said = f"left out: 1 reference solution; reasoner reads at most {whole - 1} tokens"
    assert said in caplog.text


def test_a_pair_that_the_model_has_no_positions_for_is_left_out(config, caplog):
    """Its prompt may have been shorter where it was sampled."""
    texts, _ = choose_texts(Store(config), "known", FOLDER)
    longest = max(text.length for text in texts if text.question_id == "cut")
    assert choose_texts(Store(config), "known", FOLDER, longest)[1]["pairs"] == 2
    with pytest.raises(TableError, match=r"^maps\.known: 1 of 4 questions have a right and"):
        choose_texts(Store(config), "known", FOLDER, longest - 1)
    assert "left out: 1 reference solution and 1 sample pair; reasoner reads at" in caplog.text


def test_texts_are_read_as_they_were_chosen(config, monkeypatch):
    monkeypatch.setattr(Store, "model_folder", lambda *_: FOLDER)
    texts = texts_key(config, "known")
    write_texts(Store(config), texts)
    expected, _ = choose_texts(Store(config), "known", FOLDER)
    assert read_texts(texts) == expected and len(expected) == 5
    record = read_record(Store(config).path(TEXTS, texts=texts))
    assert (record["questions"], record["pairs"], record["solutions"]) == (4, 2, 1)


def test_a_map_without_texts_is_refused(config):
    known = config.maps["known"].model_copy(update={"sampling": ()})
    bare = config.model_copy(update={"maps": {"known": known}})
    file = Store(bare).path(QUESTIONS, questions="math_train")
    write_table(file, pd.read_parquet(file).assign(solution=None), QUESTIONS)
    with pytest.raises(TableError, match=r"^maps\.known: 0 of 4 .*, --solution-column\)$"):
        choose_texts(Store(bare), "known", FOLDER)


def test_a_template_that_never_ends_is_ended(config, tmp_path, monkeypatch):
    monkeypatch.setattr(prompts, "_SECONDS", 1.0)
    loop = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    folder = tiny_models.save_qwen2(tmp_path / "model", chat_template=loop)
    with pytest.raises(ModelError, match=r"^the chat template in .* takes more than 1 s; use"):
        choose_texts(Store(config), "known", folder)
