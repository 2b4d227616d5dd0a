"""The reasoner that ships with the package: how its files are made and checked.

``python -m headroom.reasoner.shipped``, or ``make reasoner``, trains it again. Next to the weights
are a record, the loss of each step, and answers to the first test questions.
"""

import argparse
import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from headroom.benchmarks.generated import generate
from headroom.grading.matrix import grade_answers
from headroom.models.source import BUILTIN, fingerprint
from headroom.reasoner.training import Settings, train_reasoner
from headroom.record import Stopwatch, read_record, record_path, write_record
from headroom.tables import write_json

_LOG = logging.getLogger(__name__)

FOLDER = BUILTIN["builtin:reasoner"]
SETTINGS = Settings()
QUESTIONS = 200  # of the test split, with recorded answers
LONGEST = 128  # tokens of an answer

_BATCH = 50


def make(folder: Path = FOLDER, settings: Settings = SETTINGS) -> None:
    """Train the reasoner, save it in half precision in a folder, and record its answers."""
    stopwatch = Stopwatch()
    losses = train_reasoner(folder, settings, dtype=torch.float16)
    curve = pd.DataFrame({"step": range(1, len(losses) + 1), "loss": losses})
    curve.to_csv(folder / "loss.csv", index=False, float_format="%.4f")
    recorded = answers(folder)
    lines = (json.dumps(answer, separators=(",", ":")) for answer in recorded)
    (folder / "answers.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    facts = {
        "settings": settings._asdict(),
        "fingerprint": fingerprint(folder),
        "threads": len(os.sched_getaffinity(0)),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "last_loss": round(losses[-1], 4),
        "test_questions": len(recorded),
        "right": right(recorded),
    }
    weights = folder / "model.safetensors"
    write_record(weights, stopwatch, facts, folder)
    of_this_machine = {"host", "process"}  # the record is published
    published = {k: v for k, v in read_record(weights).items() if k not in of_this_machine}
    write_json(record_path(weights), published)
    _LOG.info("%d of %d test questions are answered right", facts["right"], len(recorded))


@torch.inference_mode()
def answers(folder: Path) -> list[dict[str, Any]]:
    """Answer the first test questions greedily with transformers' `generate`, in float32.

    The token ids are without the end token; margin: smallest gap of best to second-best logit.
    """
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    questions = generate("generated_math", "test", QUESTIONS, seed=0)
    found = []
    for start in range(0, QUESTIONS, _BATCH):
        rows = questions[start : start + _BATCH]
        chats = [[{"role": "user", "content": text}] for text in rows["question"]]
        prompts = tokenizer.apply_chat_template(
            chats, add_generation_prompt=True, padding=True, return_dict=True, return_tensors="pt"
        )
        out = model.generate(
            **prompts,
            do_sample=False,
            max_new_tokens=LONGEST,
            output_logits=True,
            return_dict_in_generate=True,
        )
        best = torch.stack(out.logits, dim=1).topk(2).values
        gaps = best[..., 0] - best[..., 1]
        width = prompts["input_ids"].shape[1]
        written = out.sequences[:, width:].tolist()
        for question, tokens, gap in zip(rows["question_id"], written, gaps, strict=True):
            length = [*tokens, tokenizer.eos_token_id].index(tokenizer.eos_token_id)
            found.append(
                {
                    "question_id": question,
                    "token_ids": tokens[:length],
                    "text": tokenizer.decode(tokens[:length], skip_special_tokens=True),
                    "margin": round(gap[: length + 1].min().item(), 6),
                }
            )
    return found


def recorded(folder: Path = FOLDER) -> list[dict[str, Any]]:
    """Return the recorded answers, in the format of `answers`."""
    lines = (folder / "answers.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def right(answers: Sequence[dict[str, Any]]) -> int:
    """Return the number of right answers to the first test questions."""
    questions = generate("generated_math", "test", len(answers), seed=0)
    table = pd.DataFrame(answers).assign(sample=0, stop_reason="eos")
    graded = grade_answers(questions, {"base": table}, family="math", preset="default")
    return int(graded["correct"].sum())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train the reasoner that ships with the package.")
    parser.add_argument("--output", type=Path, default=FOLDER, help="folder to fill")
    logging.basicConfig(level=logging.INFO, format="headroom: %(message)s")
    make(parser.parse_args().output)
