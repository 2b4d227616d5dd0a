"""No file of a model or embedder runs code, and each odd one is refused in one line."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tiny_models
import torch

from example_config import VALUES
from headsweep.config import parse
from headsweep.errors import ModelError
from headsweep.models.embedder import check_embedder
from headsweep.models.embeddings import embed, load_embedder
from headsweep.models.load import load_checkpoint, load_encoder, load_model
from headsweep.models.source import check_folder, weight_files
from headsweep.store.layout import Store
from headsweep.store.revisions import resolve
from headsweep.workflow.preflight import preflight

WIDTH = 48
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
KIND = "sentence_transformers.models."
MODULES = {
    "": "Transformer",
    "1_Pooling": "Pooling",
    "2_Normalize": "Normalize",
}
EVIL = """
from pathlib import Path
from transformers import BertConfig, BertModel, BertTokenizer
Path(__file__).with_name("PWNED").touch()
Path({path!r}).touch()
class Config(BertConfig): model_type = "evil"
class Model(BertModel): config_class = Config
class Tokenizer(BertTokenizer): pass
class Module(BertModel): pass
"""


def edit(file, **changes):
    content = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(content | changes))


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A folder of sentence-transformers: transformer, pooling, normalisation."""
    folder = tmp_path_factory.mktemp("sound") / "embedder"
    tiny_models.build(tiny_models.encoder("Bert")).save_pretrained(folder)
    words = ["[PAD]", "[UNK]", *(f"w{number}" for number in range(50))]
    tiny_models.save_tokenizer(folder, words, pad_token="[PAD]", unk_token="[UNK]")
    (folder / "modeling.py").write_text(EVIL.format(path=str(folder.with_name("PWNED"))))
    for part in filter(None, MODULES):
        (folder / part).mkdir()
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"{KIND}{name}"}
        for number, (path, name) in enumerate(MODULES.items())
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    edit(folder / "sentence_bert_config.json", max_seq_length=20, do_lower_case=False)
    edit(folder / "1_Pooling/config.json", word_embedding_dimension=WIDTH, pooling_mode="mean")
    return folder


@pytest.fixture
def folder(sound, tmp_path):
    """A copy that a test may damage."""
    return Path(shutil.copytree(sound, tmp_path / "embedder"))


def of_type(kind):
    def change(folder):
        modules = json.loads((folder / "modules.json").read_text())
        modules[1]["type"] = kind
        (folder / "modules.json").write_text(json.dumps(modules))

    return change


def plain(change):
    def changed(folder):
        (folder / "modules.json").unlink()
        change(folder)

    return changed


def config(**changes):
    return lambda folder: edit(folder / "config.json", **changes)


def pickled(folder):
    torch.save({"linear.weight": torch.ones(2, 3)}, folder / "pytorch_model.bin")
    (folder / WEIGHTS).unlink()


def index(shard):
    def change(folder):
        (folder / WEIGHTS).rename(folder.parent / "other.safetensors")
        shutil.copyfile(folder.parent / "other.safetensors", folder / "shard.bin")
        edit(folder / INDEX, metadata={}, weight_map={"a": shard})

    return change


def setting(**changes):
    return lambda folder: edit(folder / "sentence_bert_config.json", **changes)


CODE = {"AutoConfig": "modeling.Config", "AutoModel": "modeling.Model"}
TOKENIZER = {"AutoTokenizer": ["modeling.Tokenizer", None]}
ROUTER = "sentence_transformers.base.modules.router.Router"


def router(folder):
    of_type(ROUTER)(folder)
    types = {"types": {"a": "modeling.Module"}, "structure": {"a": ["a"]}, "parameters": {}}
    edit(folder / "1_Pooling/router_config.json", **types)


def tokenizer(folder):
    edit(folder / "tokenizer_config.json", auto_map=TOKENIZER, tokenizer_class="EvilTokenizer")


WAYS = {
    "a config's code": (plain(config(model_type="evil", auto_map=CODE)), "names code"),
    "a model's code": (config(auto_map={"AutoModel": "modeling.Model"}), "names code"),
    "a tokenizer's code": (plain(tokenizer), "names code"),
    "code of a part": (plain(config(text_config={"auto_map": CODE})), "names code"),
    "a kernel of the hub": (plain(config(attn_implementation="evil/kernel")), "names code"),
    "a module's class": (of_type("modeling.Module"), "class 'modeling.Module'"),
    "a router's classes": (router, f"class '{ROUTER}'"),
    "no module": (of_type("sentence_transformers.base.model.torch"), "is never run"),
    "layers of its own": (of_type(f"{KIND}Dense"), "Dense'.* may be Transformer, Pooling, Norm"),
    "pickled weights": (pickled, "only pytorch_model.bin, which could run code"),
    "an index": (plain(index("../other.safetensors")), "names '../other.safetensors'"),
    "an index of pickles": (index("shard.bin"), "names 'shard.bin', which is no .safetensors"),
    "other weights": (config(transformers_weights="../other.safetensors"), "takes its weights"),
    "an adapter": (
        plain(lambda folder: edit(folder / "adapter_config.json", base_model_name_or_path="/")),
        "merge the adapter",
    ),
    "loading options": (setting(model_args={"use_safetensors": False}), "'model_args' may not be"),
    "another tokenizer": (setting(tokenizer_name_or_path="/other"), "'tokenizer_name_or_path'"),
    "another method": (
        setting(modality_config={"text": {"method": "push_to_hub", "method_output_name": "a"}}),
        "'modality_config' may not be",
    ),
    "a path": (
        lambda folder: edit_module(folder, path="../embedder/1_Pooling"),
        "leads out of the folder",
    ),
    "other modules": (
        lambda folder: edit(
            folder / "config_sentence_transformers.json", model_type="CrossEncoder"
        ),
        "gives no sentences' vectors",
    ),
}


def edit_module(folder, **changes):
    modules = json.loads((folder / "modules.json").read_text())
    modules[1] |= changes
    (folder / "modules.json").write_text(json.dumps(modules))


@pytest.mark.parametrize("way", WAYS)
def test_an_embedder_never_runs_code_or_reads_pickles(folder, sound, way, monkeypatch):
    """It is refused before it is loaded, and would be by the check of a config."""
    change, message = WAYS[way]
    change(folder)
    monkeypatch.setattr("builtins.input", lambda _: "y")  # what transformers asks, if it may
    named = VALUES | {"embedders": {"minilm": {"source": str(folder)}}}
    for act in (check_embedder, load_embedder, lambda _: preflight(Store(resolve(parse(named))))):
        with pytest.raises(ModelError, match=rf"^.*{message}.*$"):
            act(folder)
    assert not (folder / "PWNED").exists() and not sound.with_name("PWNED").exists()


def test_a_sound_embedder_is_that_of_sentence_transformers(sound):
    from sentence_transformers import SentenceTransformer

    check_embedder(sound)
    texts = ["w1 w2 w3", "w40", "w7 w7 w7 w9 w11"]
    vectors = embed(load_embedder(sound), texts, 2)
    assert vectors.shape == (3, WIDTH)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    reference = SentenceTransformer(str(sound), local_files_only=True)
    np.testing.assert_allclose(vectors, reference.encode(texts), atol=1e-5)


MODEL_WAYS = [
    "a config's code",
    "a tokenizer's code",
    "code of a part",
    "a kernel of the hub",
    "pickled weights",
    "an index",
    "an adapter",
]


@pytest.mark.parametrize(
    ("way", "loaders"),
    [
        (MODEL_WAYS[0], (load_encoder, load_checkpoint, load_model)),
        *((way, (load_checkpoint,)) for way in MODEL_WAYS[1:]),
    ],
)
def test_nor_does_an_encoder_or_another_model(folder, sound, way, loaders, monkeypatch):
    change, message = WAYS[way]
    (folder / "modules.json").touch()  # for `plain`
    change(folder)
    monkeypatch.setattr("builtins.input", lambda _: "y")
    for act in loaders:
        with pytest.raises(ModelError, match=rf"^.*{message}.*$"):
            act(str(folder))
    assert not (folder / "PWNED").exists() and not sound.with_name("PWNED").exists()


def test_code_that_transformers_does_not_need_is_left_aside(folder, sound, monkeypatch):
    """Many models of the hub name code that transformers has taken over since."""
    monkeypatch.setattr("builtins.input", lambda _: "y")
    config(auto_map=CODE)(folder)
    edit(folder / "tokenizer_config.json", auto_map=TOKENIZER, tokenizer_class="BertTokenizer")
    check_folder(folder)
    assert type(load_checkpoint(str(folder))).__module__.startswith("transformers.")
    assert not (folder / "PWNED").exists() and not sound.with_name("PWNED").exists()


def test_the_weights_that_are_checked_are_those_that_are_read(folder):
    """Of one file and an index, transformers takes the file."""
    edit(folder / INDEX, metadata={}, weight_map={"a": "../other.safetensors"})
    assert weight_files(folder) == [folder / WEIGHTS]


def header(**tensors):
    return json.dumps(tensors).encode()


def tensor(dtype="U8", shape=(4,), offsets=(0, 4)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


HEADERS = {  # what safetensors itself refuses, in a few forms
    "beyond the file": (b"{}", 4, 1 << 40),
    "no JSON": (b"{]", 0, None),
    "shape": (header(a=tensor("F32")), 4, None),
    "large shape": (header(a=tensor(shape=[1 << 62] * 40_000)), 4, None),
    "100 MB": (b"{}", 4, 100_000_001),
}


@pytest.mark.parametrize("form", HEADERS)
def test_an_odd_safetensors_header_is_refused_in_one_line(folder, form):
    content, data, length = HEADERS[form]
    start = (len(content) if length is None else length).to_bytes(8, "little")
    with (folder / WEIGHTS).open("wb") as stream:
        stream.write(start + content + b"\0" * data)
        if form == "100 MB":  # sparse
            stream.truncate(8 + 100_000_001 + data)
    for act in (check_folder, lambda folder: load_checkpoint(str(folder))):
        with pytest.raises(ModelError, match=rf"^{folder / WEIGHTS}.*fetch it again$") as told:
            act(folder)
        assert len(str(told.value)) < 700


JSONS = {
    "deep": b'{"a":' * 90_000,
    "deep list": b"[" * 90_000 + b"]" * 90_000,
    "Latin-1": b'{"model_type": "caf\xe9"}',
    "no object": b"[1]",
    "no text": b'{"model_type": ["bert"]}',
}


@pytest.mark.parametrize(
    ("name", "form"),
    [
        *(("config.json", form) for form in JSONS),
        *((name, "deep") for name in ("tokenizer.json", INDEX, "modules.json")),
    ],
)
def test_an_odd_json_file_of_a_model_is_refused_in_one_line(folder, name, form):
    if name == INDEX:
        (folder / WEIGHTS).unlink()
    (folder / name).write_bytes(JSONS[form])
    act = load_embedder if name == "modules.json" else lambda folder: load_model(str(folder))
    with pytest.raises(ModelError, match=r"^.*$") as told:
        act(folder)
    assert str(folder) in str(told.value)
    assert len(str(told.value)) < 700


@pytest.mark.parametrize(
    "changes",
    [
        {"hidden_size": "wide"},
        {"num_hidden_layers": [1]},
        {"architectures": ["pipeline"]},
        {"architectures": 7},
        {"architectures": "\ud800"},
        {"vocab_size": None},
        {"quantization_config": 3},
        {"text_config": 5},
    ],
    ids=str,
)
def test_a_config_of_odd_values_is_refused_in_one_line_or_loads(folder, changes):
    config(**changes)(folder)
    try:
        load_checkpoint(str(folder))
    except ModelError as error:
        assert str(folder) in str(error)
        assert "\n" not in str(error)
        assert str(error).isprintable()
