"""Model files are checked before anything is loaded, and each fault has one clear line."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from huggingface_hub import errors

from headroom.errors import ModelError
from headroom.models.source import check_folder, check_geometry, fetch_model, fingerprint

HUB_ID = "some/model"
REVISION = "0123abc"


def split_weights(folder: Path) -> None:
    """Turn the weights into one shard with an index that names two."""
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    shards = {"one": "model-00001-of-00002.safetensors", "two": "model-00002-of-00002.safetensors"}
    index = {"metadata": {}, "weight_map": shards}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def pickle_only(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def truncate(folder: Path) -> None:
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[:-100])


def leave_a_pointer(folder: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    (folder / "model.safetensors").write_text(pointer)


DAMAGES = {
    "no config": (lambda folder: (folder / "config.json").unlink(), "config.json is missing"),
    "config is no JSON": (
        lambda folder: (folder / "config.json").write_text("{"),
        "config.json is not JSON",
    ),
    "config of something else": (
        lambda folder: (folder / "config.json").write_text("{}"),
        "config.json has no 'model_type'",
    ),
    "no weights": (
        lambda folder: (folder / "model.safetensors").unlink(),
        "has no weights; only safetensors are read",
    ),
    "pickled weights": (pickle_only, "has only pytorch_model.bin, which could run code when read"),
    "missing shard": (split_weights, "lacks model-00002-of-00002.safetensors"),
    "truncated weights": (truncate, "bytes, not .* fetch it again"),
    "pointer": (leave_a_pointer, "is not a safetensors file"),
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").unlink(), "has no tokenizer"),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_folder_is_refused_in_one_line(qwen2_folder: Path, damage, message: str):
    check_folder(qwen2_folder)
    damage(qwen2_folder)
    with pytest.raises(ModelError, match=message) as caught:
        fetch_model(str(qwen2_folder))
    assert "\n" not in str(caught.value)


def test_a_folder_whose_files_changed_is_refused(qwen2_folder: Path):
    old = fingerprint(qwen2_folder)
    assert fetch_model(str(qwen2_folder), old) == qwen2_folder
    (qwen2_folder / "chat_template.jinja").write_text("{{ messages }}")
    new = fingerprint(qwen2_folder)
    with pytest.raises(ModelError, match=f"has fingerprint {new}, not {old}"):
        fetch_model(str(qwen2_folder), old)
    for path in (qwen2_folder / "absent", qwen2_folder / "config.json"):
        with pytest.raises(ModelError, match="is not a folder"):
            fetch_model(str(path))


def test_geometry_is_held_against_the_models_config(qwen2_folder: Path):
    check_geometry(qwen2_folder, layers=4, heads=6, kv_heads=2)
    stated = {"layers": 4, "heads": 6, "kv_heads": 2}
    for name, value in {"layers": 28, "heads": 12, "kv_heads": 3}.items():
        message = f"{name}: {value} is stated, but .* says {stated[name]}; write {name}: "
        with pytest.raises(ModelError, match=message):
            check_geometry(qwen2_folder, **{**stated, name: value})


@pytest.mark.parametrize(
    ("config", "geometry"),
    [
        ({"n_layer": 12, "n_head": 8}, (12, 8, 8)),
        ({"n_layers": 12, "n_heads": 8}, (12, 8, 8)),
        ({"text_config": {"num_hidden_layers": 7, "num_attention_heads": 8}}, (7, 8, 8)),
        ({"num_hidden_layers": 7, "num_attention_heads": 8, "multi_query": True}, (7, 8, 1)),
        (
            {
                "num_hidden_layers": 7,
                "num_attention_heads": 8,
                "num_kv_heads": 2,
                "multi_query": True,
                "new_decoder_architecture": True,
            },
            (7, 8, 2),
        ),
    ],
)
def test_geometry_is_read_under_every_name(tmp_path: Path, config, geometry: tuple[int, int, int]):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "any", **config}))
    check_geometry(tmp_path, *geometry)
    with pytest.raises(ModelError, match="kv_heads: 5 is stated"):
        check_geometry(tmp_path, *geometry[:2], 5)


def test_a_config_without_heads_is_refused(tmp_path: Path):
    (tmp_path / "config.json").write_text('{"model_type": "mamba", "num_hidden_layers": 3}')
    with pytest.raises(ModelError, match="does not state heads"):
        check_geometry(tmp_path, 3, 8, 8)


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer.json", "generation_config.json", "model.safetensors"]
)
def test_the_fingerprint_changes_with_every_small_file(qwen2_folder: Path, name: str):
    before = fingerprint(qwen2_folder)
    assert before == fingerprint(qwen2_folder)
    content = (qwen2_folder / name).read_bytes()
    last = content[-1:] + b" " if name.endswith("json") else bytes([content[-1] ^ 1])
    (qwen2_folder / name).write_bytes(content[:-1] + last)
    assert fingerprint(qwen2_folder) != before


def test_the_fingerprint_reads_a_large_weight_file_by_slices(qwen2_folder: Path):
    """A sparse file of 3 GB: its first, middle and last bytes count, and reading stays short."""
    size = 3 << 30
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}})
    start = len(header).to_bytes(8, "little") + header.encode()
    file = qwen2_folder / "model.safetensors"
    with file.open("wb") as stream:
        stream.write(start)
        stream.truncate(len(start) + size)
    seen = {fingerprint(qwen2_folder)}
    total = file.stat().st_size
    for offset in (len(start), 31 * (total - (1 << 16)) // 63, total - 1):
        with file.open("r+b") as stream:
            stream.seek(offset)
            stream.write(b"\1")
        seen.add(fingerprint(qwen2_folder))
    assert len(seen) == 4


RESPONSE = SimpleNamespace(headers={}, request=None, status_code=403, text="")
REFUSALS = {
    "gated": (errors.GatedRepoError("403", response=RESPONSE), "is gated; accept its terms at"),
    "unknown": (
        errors.RepositoryNotFoundError("404", response=RESPONSE),
        r"some/model \(revision 0123abc\) cannot be fetched \(404\); check name,",
    ),
    "full disk": (OSError(28, "No space left on device"), "No space left on device"),
}


@pytest.mark.parametrize(("error", "message"), REFUSALS.values(), ids=REFUSALS)
def test_what_the_hub_refuses_is_explained_without_the_token(
    monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
):
    def refuse(*_: object, **__: object) -> str:
        raise error

    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setattr("huggingface_hub.snapshot_download", refuse)
    with pytest.raises(ModelError, match=message) as caught:
        fetch_model(HUB_ID, REVISION)
    assert "hf_secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_only_files_that_are_read_are_downloaded(
    monkeypatch: pytest.MonkeyPatch, qwen2_folder: Path
):
    asked = {}

    def download(hub_id: str, **options: object) -> str:
        asked.update(options, hub_id=hub_id)
        return str(qwen2_folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert fetch_model(HUB_ID, REVISION) == qwen2_folder
    assert (asked["hub_id"], asked["revision"]) == (HUB_ID, REVISION)
    allowed = asked["allow_patterns"]
    assert not any(name.endswith((".bin", ".py", ".pth")) for name in allowed)


def test_checking_files_imports_neither_torch_nor_the_hub():
    code = "import sys, headroom.models.source; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "huggingface_hub"} & set(run.stdout.split())
