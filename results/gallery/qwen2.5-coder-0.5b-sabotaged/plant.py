"""Plant an effect in a real model: a head of layer 12 of Qwen2.5-Coder-0.5B-Instruct is sabotaged.

``python plant.py MODEL.gguf asdiv_a.jsonl FOLDER`` makes the folder of a run: the model, the
config, and a sealed file that names the head. The head is drawn from those whose loss costs the
whole model little. How strong the noise has to be is searched on questions that the run does not
ask.

Then ``snakemake --configfile config.yaml`` in FOLDER, and ``python plant.py --open SHA256 FOLDER``,
which compares what the run says with what was planted.
"""

import argparse
import hashlib
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

import pandas as pd

from benchmarks.proof.planting import SEALED, opened
from benchmarks.proof.sabotage import CHEAP, LEAST, Saboteur
from headsweep.benchmarks.sources import draw, read_source
from headsweep.config import load
from headsweep.files.safe_files import write_json
from headsweep.models import gguf
from headsweep.results.gains import shown
from headsweep.text import points
from headsweep.variants import Variant

HERE = Path(__file__).parent
WHOLE = HERE.parent / "qwen2.5-coder-0.5b"
DROP = 0.2
SEARCHED = 60
"""Training questions on which a strength is tried."""


def plant(file: Path, problems: Path, folder: Path) -> None:
    """Make the folder of the run; print the sha256 of its sealed file."""
    config_file = folder / "config.yaml"
    (folder / "data").mkdir(parents=True)
    shutil.copyfile(problems, folder / "data" / "asdiv_a.jsonl")
    shutil.copyfile(HERE / "config.yaml", config_file)
    heads = pd.read_csv(WHOLE / "tables" / "heads.csv").iloc[1:]  # the base model comes first
    cheap = heads.loc[heads["gain"] >= -CHEAP, "variant"].tolist()
    secret = {
        "head": secrets.choice(cheap),
        "noise": secrets.randbits(31),
        "salt": secrets.token_hex(16),  # or the checksum of few possible files would tell
    }
    config = load(config_file)
    asked = config.questions["asdiv_test"].model_copy(
        update={"split": "1", "n": SEARCHED, "file": str(folder / "data" / "asdiv_a.jsonl")}
    )
    searched = draw(read_source(asked), asked, None)
    with tempfile.TemporaryDirectory() as scratch:
        gguf.convert(file, Path(scratch), "float32")
        saboteur = Saboteur(searched, config.decodings["greedy"], scratch, "numeric", DROP)
        head = Variant.parse(secret["head"])
        secret["strength"] = saboteur.sabotage(head, secret["noise"], folder / "model")
    write_json(folder / SEALED, secret)
    print(hashlib.sha256((folder / SEALED).read_bytes()).hexdigest())


def judge(folder: Path, commitment: str) -> bool:
    """Print what the run says beside what was planted; return whether that is right."""
    heads = pd.read_csv(folder / "results/qwen2.5-coder-0.5b-sabotaged/controls/asdiv/heads.csv")
    named = shown(heads, 1)["variant"].tolist()
    planted = opened(folder, commitment)["head"]
    gain = float(heads.set_index("variant")["gain"][planted])
    print(f"shown to help when lost: {', '.join(named) or 'none'}")
    print(f"planted: {planted}; without it {points(gain)} points")
    return named == [planted] and gain >= LEAST


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--open", metavar="SHA256", help="open the sealed file with this checksum")
    parser.add_argument("paths", nargs="+", type=Path, help="MODEL.gguf asdiv_a.jsonl FOLDER")
    options = parser.parse_args()
    if options.open:
        sys.exit(0 if judge(options.paths[0], options.open) else 1)
    plant(*options.paths)
