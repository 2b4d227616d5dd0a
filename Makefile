# make demo     from nothing to results/demo/report.html
# make real     the report of a real model, from its answers in results/gallery; about a minute;
#               MODEL=qwen2.5-coder-0.5b-families: the comparison of families
# make prune-example  a real model pruned and recovered, in an hour or two: GGUF=, DATA=
# make asdiv    small solvers compressed on ASDiv-A, results/gallery/asdiv: an hour of a core; DATA=
# make proof    effects are planted, and a run that does not know them has to find them; SEED=
# make test     the tests and the linters, in the same environment
# make site     the documentation as a site, build/site
# make nightly  what takes hours: every step of NIGHTLY below, each to the end, each with a log
# Its steps alone:
# make faults   200 seeded rounds of faults: kills, full disks, damage, moved clocks; FROM=, ROUNDS=
# make kills    an engine killed 20 times in one sweep
# make errors   1,000 drawn worlds, with effects and without: how often a verdict is wrong
# make long     tests of which the suite does a part: more draws, more rows of data; HEADSWEEP_DATA=
# make hostile  10,000 hostile answers graded, and all gold answers of MATH
# make slurm    the shipped profile on a real SLURM, which it installs (root, apt-get) and stops
# make llama-cpp  GGUF files against llama.cpp itself, which pip builds in minutes; HEADSWEEP_GGUF=
# make vllm     the second backend on one rank and on two, against this engine; installs vLLM's CPU build
# make training, make figures  the reasoner trained again, the figures in docs/ made again, both compared
# make suite-3.12, make suite-3.13  `make test` on another Python
#
# make reasoner trains the reasoner that the package ships, in place; make readme puts the demo's
# and the real models' figures into docs/ and results/gallery.
PYTHON ?= python3
PYTHON312 ?= python3.12
PYTHON313 ?= python3.13
VENV ?= .venv
CORES ?= $(shell nproc)
# PyTorch's CPU wheel index, for Linux machines without a GPU; see README.md.
TORCH_INDEX ?=

BIN := $(VENV)/bin
# Stamps: what a user needs is there; what tests and linting need on top is there.
INSTALLED := $(VENV)/.installed
DEVELOPED := $(VENV)/.developed
PYTEST := $(BIN)/python -m pytest
NIGHTLY := faults kills errors long proof hostile slurm architectures llama-cpp vllm training figures suite-3.12 suite-3.13
LOGS := $(VENV)/nightly
# Not the word MAKE: recipes that hold it run even under `make -n`.
AGAIN := $(MAKE) --no-print-directory

.PHONY: demo real prune-example asdiv test lint site reasoner readme nightly $(NIGHTLY) lock reference clean

# Some images forbid it for all: then every job would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE

demo: $(INSTALLED)
	$(BIN)/snakemake --cores $(CORES) --configfile config/demo.yaml
	@echo "The report: results/demo/report.html"

# Without the model and the questions' texts: headsweep export made results/gallery/$(MODEL).
MODEL := qwen2.5-coder-0.5b
MATH := qwen2.5-coder-1.5b-math500
real: $(INSTALLED)
	mkdir -p results/real
	cp -R $(addprefix results/gallery/$(MODEL)/,config.json results) results/real
	$(BIN)/snakemake --cores $(CORES) --directory results/real --configfile results/real/config.json
	@echo "The report: results/real/results/$(MODEL)/report.html"

# DATA is a folder with math_train.jsonl.gz and math500.jsonl, GGUF SmolLM2-135M-Instruct as Q4_1.
prune-example: $(DEVELOPED)
	PATH="$(abspath $(BIN)):$$PATH" sh results/gallery/smollm2-135m-pruned/make.sh $(GGUF) \
		$(DATA)/math_train.jsonl.gz $(DATA)/math500.jsonl results/prune-example

# DATA is a folder with asdiv_a.jsonl, as ATHENA prepares it. Kept is Table 4 without the columns
# after `whole_removed`: times are those of one machine.
ASDIV := results/asdiv-gallery
asdiv: $(INSTALLED)
	mkdir -p $(ASDIV)/data
	cp $(DATA)/asdiv_a.jsonl $(ASDIV)/data
	$(BIN)/snakemake --cores $(CORES) --directory $(ASDIV) --configfile results/gallery/asdiv/config.yaml
	cut -d , -f 1-26 $(ASDIV)/results/asdiv/tables/compression_table4.csv > results/gallery/asdiv/table4.csv

# Blind, in three to five minutes: see benchmarks/proof.
proof: $(INSTALLED)
	$(BIN)/python -m benchmarks.proof --cores $(CORES) $(if $(SEED),--seed $(SEED))

# The linters work beside pytest; what they say is printed at the end. Files are handed out in the
# order of collection (xdist's own order is by number of tests, which says nothing of their length).
test: $(DEVELOPED)
	@$(AGAIN) lint >$(VENV)/lint.log 2>&1 & lint=$$!; \
	$(PYTEST) -n $(CORES) --dist loadfile --no-loadscope-reorder --durations=20; tests=$$?; \
	wait $$lint; lint=$$?; cat $(VENV)/lint.log; \
	echo "exit status: pytest $$tests, linters $$lint"; [ $$tests$$lint = 00 ]

lint: $(DEVELOPED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/mypy
	$(BIN)/python .ci/idioms.py src benchmarks
	$(BIN)/snakemake --lint
	$(AGAIN) site

# With a warning, as of a link that leads nowhere, there is no site.
site: $(DEVELOPED)
	$(BIN)/properdocs build --strict --quiet

reasoner: $(INSTALLED)
	$(BIN)/python -m headsweep.experiments.reasoner

nightly: $(DEVELOPED)
	@mkdir -p $(LOGS); failed=; for step in $(NIGHTLY); do \
		echo "$$step: $(LOGS)/$$step.log"; \
		$(AGAIN) $$step >$(LOGS)/$$step.log 2>&1 || failed="$$failed $$step"; \
	done; [ -z "$$failed" ] || { echo "failed:$$failed"; exit 1; }

faults: $(DEVELOPED)
	HEADSWEEP_FAULTS=$(or $(ROUNDS),200) HEADSWEEP_FAULTS_FROM=$(or $(FROM),0) $(PYTEST) tests/faults

kills: $(DEVELOPED)
	HEADSWEEP_KILLS=20 $(PYTEST) tests/workflow/test_engine_deaths.py

errors: $(DEVELOPED)
	HEADSWEEP_NIGHTLY=1 $(PYTEST) tests/proof

LONG := tests/athena/test_word_problems.py tests/bench tests/engine/test_verify.py \
	tests/maps/test_map_scores.py tests/models/test_gguf.py tests/results/test_claims.py \
	tests/results/test_noise.py tests/sprint/test_sprint_evaluation.py tests/statistics/test_anytime.py \
	tests/statistics/test_power.py tests/statistics/test_selection.py tests/workflow/test_shell_commands.py \
	tests/workflow/test_shipped_configs.py
long: $(DEVELOPED)
	HEADSWEEP_NIGHTLY=1 $(PYTEST) $(LONG)

hostile: $(DEVELOPED)
	HEADSWEEP_NIGHTLY=1 HEADSWEEP_HOSTILE=10000 $(PYTEST) tests/grading

llama-cpp: $(DEVELOPED)
	$(BIN)/pip install --quiet --no-deps --target $(VENV)/llama-cpp 'llama-cpp-python>=0.3.16' diskcache
	PYTHONPATH=$(abspath $(VENV))/llama-cpp $(PYTEST) tests/models/test_gguf_export.py tests/models/test_gguf_import.py

# vLLM and its libraries are no part of the environment that everything else is tested in.
VLLM := $(VENV)/vllm
$(VLLM)/.installed: envs/vllm.txt
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --requirement envs/vllm.txt
	touch $@

vllm: $(DEVELOPED) $(VLLM)/.installed
	HEADSWEEP_VLLM=$(abspath $(VLLM))/bin/python $(PYTEST) tests/engine/test_vllm.py

SLURM := slurmctld slurmd slurm-client munge slurm-wlm-basic-plugins
slurm: $(DEVELOPED)
	-test $$(id -u) != 0 || test -e /etc/slurm/slurm.conf || which slurmctld slurmd sbatch munged >/dev/null || { \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
		apt-get install -qq --yes --no-install-recommends $(SLURM); }
	HEADSWEEP_SLURM=1 $(PYTEST) tests/slurm

training: $(DEVELOPED)
	HEADSWEEP_NIGHTLY=1 $(PYTEST) tests/reasoner

figures: $(DEVELOPED) demo
	HEADSWEEP_NIGHTLY=1 $(PYTEST) tests/nightly

readme: demo real
	$(AGAIN) real MODEL=$(MATH)
	$(AGAIN) real MODEL=$(MODEL)-families
	$(AGAIN) real MODEL=$(MODEL)-map
	$(BIN)/python tests/nightly/readme.py results/demo results/real/results/$(MATH) $(addprefix results/real/results/$(MODEL),/ -families/ -map/)

suite-3.12 suite-3.13: suite-3.%:
	@$(PYTHON3$*) -c 'import sys; sys.exit(sys.version_info[:2] != (3, $*))' || \
		{ echo "Python 3.$* is needed; install it, or name one: make $@ PYTHON3$*=/path/to/python3.$*"; exit 1; }
	$(AGAIN) test VENV=.venv-3.$* PYTHON=$(PYTHON3$*)

# A pip of today reads an index in half the time of the one that Python 3.11 brings. PyTorch comes
# first, with what it needs (a GPU's build brings CUDA's libraries); the locks hold all that their
# packages need, so nothing else is resolved. pip would compile everything on one core; what a run
# imports is compiled on all of them, and the rest (tests, hundreds of models) by its first import.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
LOCKED := $(PIP) --no-deps --no-build-isolation --requirement
SELDOM := /(tests?|testing|_inductor|lexers|transformers/models)/
$(INSTALLED): envs/cpu.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; name one: make PYTHON=python3.12 demo")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) 'pip>=25'
	$(PIP) --constraint envs/cuda.txt torch setuptools $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
	$(LOCKED) envs/cpu.txt --editable .
	-$(BIN)/python -m compileall -qq -j 0 -x '$(SELDOM)' $(VENV)/lib
	touch $@

$(DEVELOPED): $(INSTALLED) envs/dev.txt
	$(LOCKED) envs/dev.txt
	touch $@

# Remakes the locks from pyproject.toml. The CPU lock is the CUDA lock without CUDA's libraries; the
# developers' lock is what tests and linting need on top.
# The newest on PyPI that is built for CUDA 12.
TORCH12 := 2.10.0
LOCK := uv pip compile pyproject.toml --universal --python-version 3.11 --no-annotate --no-header --quiet
lock:
	$(LOCK) --extra slurm --constraint envs/constraints.txt --output-file envs/cuda.txt
	grep --invert-match --extended-regexp '^(nvidia|cuda|triton)' envs/cuda.txt > envs/cpu.txt
	sed 's/^torch==.*/torch==$(TORCH12)/' envs/cpu.txt > envs/cuda12.part
	uv pip compile envs/cuda12.part --universal --python-version 3.11 --no-annotate --no-header --quiet --output-file envs/cuda12.txt
	rm envs/cuda12.part
	$(LOCK) --extra slurm --extra dev --constraint envs/cuda.txt --output-file envs/dev.txt
	grep --invert-match --line-regexp --fixed-strings --file=envs/cuda.txt envs/dev.txt > envs/dev.part
	grep '^triton' envs/cuda.txt >> envs/dev.part
	mv envs/dev.part envs/dev.txt

# Sweeps, maps, prunes, recovers and exports a tiny model of each architecture, and remakes
# config/architectures.md of that: five minutes of a core.
architectures: $(DEVELOPED)
	$(BIN)/python tests/models/architectures.py

# Remakes config/reference.md and the captions of figures in Snakemake's report.
reference: $(INSTALLED)
	$(BIN)/python -m headsweep.cli.reference config/reference.md workflow/report

# Keeps .snakemake, by which a later run knows what results/ was made from.
clean:
	rm -rf .venv $(VENV) .venv-3.*
