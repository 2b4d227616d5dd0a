# make demo   from nothing to results/demo/report.html
# make test   the tests, in the same environment
# make slurm  the shipped profile on a real SLURM, which it installs (root, apt-get) and stops
# make faults 200 seeded rounds of faults: kills, full disks, damage, moved clocks
# make hostile  10,000 hostile answers, graded
PYTHON ?= python3
VENV ?= .venv
CORES ?= $(shell nproc)
# PyTorch's CPU wheel index, for Linux machines without a GPU; see README.md.
TORCH_INDEX ?=

BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo test slurm faults hostile lint lock reference clean

demo: $(INSTALLED)
	$(BIN)/snakemake --cores $(CORES) --workflow-profile workflow/profiles/default --configfile config/demo.yaml
	@echo "The report: results/demo/report.html"

test: $(INSTALLED) lint
	$(BIN)/python -m pytest -n $(CORES) --dist loadfile --no-loadscope-reorder

slurm: $(INSTALLED)
	HEADROOM_SLURM=1 $(BIN)/python -m pytest tests/slurm

faults: $(INSTALLED)
	HEADROOM_FAULTS=$(or $(ROUNDS),200) HEADROOM_FAULTS_FROM=$(or $(FROM),0) $(BIN)/python -m pytest tests/faults

hostile: $(INSTALLED)
	HEADROOM_HOSTILE=10000 $(BIN)/python -m pytest tests/grading/test_hostile.py

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/mypy
	$(BIN)/snakemake --lint

$(INSTALLED): envs/cpu.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; name one: make PYTHON=python3.12 demo")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $$(grep '^torch==' envs/cpu.txt) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement envs/cpu.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

# Remakes both locks from pyproject.toml; the CPU lock is the CUDA lock without CUDA's libraries.
lock:
	uv pip compile pyproject.toml --extra dev --extra slurm --universal --python-version 3.11 \
		--constraint envs/constraints.txt --no-annotate --no-header --quiet --output-file envs/cuda.txt
	grep --invert-match --extended-regexp '^(nvidia|cuda|triton)' envs/cuda.txt > envs/cpu.txt

# Remakes the reference in config/README.md.
reference: $(INSTALLED)
	$(BIN)/python -m headroom.reference config/README.md

clean:
	rm -rf $(VENV) .snakemake
