#!/bin/sh
# Makes table.csv again: Qwen2.5-Coder-0.5B-Instruct without an eighth of its heads, recovered on
# MATH's solutions.
#
#   sh make.sh qwen2.5-coder-0.5b-instruct-q4_k_m.gguf math_train.jsonl.gz math500.jsonl asdiv_a.jsonl RUNS
#
# Each run of `headsweep prune` resumes where it was stopped. Some 65 CPU minutes for the mixture with its
# control, 50 for causal, on one core with AVX-512, and 8 GB.
set -eu
gguf=$1 train=$2 test=$3 asdiv=$4 runs=$5
here=$(cd "$(dirname "$0")" && pwd)
model=$runs/qwen2.5-coder-0.5b
mkdir -p "$runs"
[ -e "$model" ] || python -c '
import pathlib, sys
from headsweep.models import gguf
gguf.convert(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), "bfloat16")' "$gguf" "$model"
head -n 24 "$test" > "$runs/held-out.jsonl"
python -c '
import json, sys
for line in open(sys.argv[1], encoding="utf-8"):
    row = json.loads(line)
    print(json.dumps({"question": row["Text"], "answer": row["Answer"]}))' "$asdiv" > "$runs/asdiv.jsonl"

for arm in mixed causal; do
    out=$runs/$arm-0
    control=
    [ "$arm" = causal ] || control=--control
    [ -e "$out" ] || headsweep prune "$model" --ratio 0.125 --criterion "$arm" $control --recover \
        --text "$train" --held-out "$runs/held-out.jsonl" --fields solution \
        --rounds 2 --steps 42 --batch-size 4 --micro-batch 2 --length 256 --calibration 2 --lora 16 \
        --benchmark "$runs/asdiv.jsonl" --grader numeric -n 64 --max-new-tokens 160 \
        --precision no --device cpu --out "$out"
    rm -f "$out"/*.safetensors
    python "$here/../smollm2-135m-pruned/table.py" "$runs" "$here"
done
