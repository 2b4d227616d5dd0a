#!/bin/sh
# Makes table.csv again: SmolLM2-135M-Instruct without a quarter of its heads, recovered on MATH's solutions.
#
#   sh make.sh SmolLM2-135M-Instruct.Q4_1.gguf math_train.jsonl.gz math500.jsonl RUNS
#
# Each run of `headsweep prune` resumes where it was stopped, and its row is written when it ends.
# 21 to 27 minutes a run on one core with AVX-512.
set -eu
gguf=$1 train=$2 test=$3 runs=$4
here=$(cd "$(dirname "$0")" && pwd)
model=$runs/smollm2-135m
mkdir -p "$runs"
[ -e "$model" ] || python -c '
import pathlib, sys
from headsweep.models import gguf
gguf.convert(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), "bfloat16")' "$gguf" "$model"
head -n 48 "$test" > "$runs/held-out.jsonl"

for seed in 0 1 2; do
    for arm in causal mixed trained_on norm random; do
        case $arm in
            trained_on) choice="--ratio 0" ;;
            *) choice="--ratio 0.25 --criterion $arm" ;;
        esac
        out=$runs/$arm-$seed
        [ -e "$out" ] || headsweep prune "$model" $choice --seed "$seed" --recover \
            --text "$train" --held-out "$runs/held-out.jsonl" --fields solution \
            --rounds 2 --steps 134 --batch-size 4 --micro-batch 4 --length 256 \
            --calibration 4 --learning-rate 1e-4 --precision no --device cpu --out "$out"
        rm -f "$out"/*.safetensors
        python "$here/table.py" "$runs" "$here"
    done
done
