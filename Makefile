# `make` alone prints what there is. No recipe needs an activated environment.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One more than there are cores, since tests wait for processes, disks and Spark.
WORKERS = $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
PARALLEL = --numprocesses $(WORKERS)
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# The tests start hundreds of processes: without compiled files each of them compiles all of the source anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help: ## print this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' Makefile

# Two stamps: the core is quick to install, the tools for development take a while.
# A stamp is older than pyproject.toml when the environment has to be brought up to date.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Sirius needs Python 3.11 or later; try: make PYTHON=python3.11" >&2; exit 1; }
	@echo "making the virtual environment $(VENV)" >&2
	@$(PYTHON) -m venv $(VENV) \
	  || { rm -rf $(VENV); echo "on Debian: apt install python3-venv" >&2; exit 1; }

$(VENV)/.core: pyproject.toml | $(BIN)/python
	@echo "installing the core into $(VENV)" >&2
	@$(PIP_INSTALL) --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	@echo "installing the core and the development tools into $(VENV)" >&2
	@$(PIP_INSTALL) --editable '.[dev]'
	@touch $(VENV)/.core $@

.PHONY: install
install: $(VENV)/.dev ## install Sirius and the development tools into .venv

.PHONY: demo
demo: $(VENV)/.core ## start a cluster, kill its leader, compare its nodes; installs the core alone
	@$(BIN)/python -m sirius demo --once

.PHONY: test
test: $(VENV)/.dev ## run every test that is not marked deep (about ten minutes on two free cores)
	$(BIN)/python -m pytest $(PARALLEL)

.PHONY: test-deep
test-deep: $(VENV)/.dev ## run the deep tests: many seeds, many kills
	$(BIN)/python -m pytest $(PARALLEL) -m deep

# The oldest tools that pyproject.toml allows: what they make runs with that version of protobuf and with later ones.
PROTO_TOOLS := $(VENV)/proto-tools
.PHONY: proto
proto: $(VENV)/.dev ## make the Python code of proto/*.proto
	@test -d $(PROTO_TOOLS) || $(BIN)/python -m venv $(PROTO_TOOLS)
	@$(PROTO_TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check \
	  grpcio-tools==1.66.2 'protobuf<6' 'setuptools<80'
	@$(PROTO_TOOLS)/bin/python -m grpc_tools.protoc --proto_path=proto \
	  --python_out=sirius/transport --pyi_out=sirius/transport proto/sirius.proto proto/broadcast.proto

# Without the random walks: what only a random walk reaches wants a test with a name.
.PHONY: coverage
coverage: $(VENV)/.dev ## fail if a branch of the consensus or catch-up machine is not tested
	$(BIN)/python -m pytest tests/paxos tests/catchup --ignore=tests/paxos/test_paxos_walks.py \
	  --cov=sirius.paxos --cov=sirius.catchup --cov-branch --cov-fail-under=100 \
	  --cov-report=term-missing:skip-covered

.PHONY: check
check: $(VENV)/.dev ## ruff (rules and format) and mypy; changes nothing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

.PHONY: format
format: $(VENV)/.dev ## let ruff format the code and mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# No echo of the command: with JSON=1 the standard output is JSON and nothing else.
.PHONY: bench
bench: $(VENV)/.dev ## run the benchmarks; ONLY=name for one, JSON=1 for JSON
	@$(BIN)/python -m benchmarks $(if $(ONLY),--only $(ONLY)) $(if $(filter-out 0,$(JSON)),--json)

.PHONY: sim
sim: $(VENV)/.core ## try to break consensus; SEED=17, COUNT=100 JOBS=2 for many, TRACE=file, MINIMISE=1, TRAP=5
	@$(BIN)/python -m sirius.testing.simulator --seed $(or $(SEED),0) --count $(or $(COUNT),1) \
	  --jobs $(or $(JOBS),1) $(if $(TRACE),--trace $(TRACE)) $(if $(TRAP),--trap $(TRAP)) \
	  $(if $(filter-out 0,$(MINIMISE)),--minimise) $(if $(filter-out 0,$(JSON)),--json)

# The seeds first: they go on where they stopped, as long as the code is the same.
.PHONY: soak
soak: soak-seeds ## run the deep tests with many more seeds (hours)
	SIRIUS_SOAK=1 $(BIN)/python -m pytest -m deep

# Compiled, a seed takes two thirds of the time; see sirius/testing/simulator/compiled.py.
SOAK = $(abspath $(or $(LEDGER),.soak))
.PHONY: soak-seeds
soak-seeds: $(VENV)/.dev ## 50,000 seeds of the simulator, in as many pieces as it takes; LEDGER=folder
	$(BIN)/python -m sirius.testing.simulator.compiled $(SOAK)/compiled
	cd $(SOAK)/compiled && PYTHONPATH=. $(abspath $(BIN))/python -m sirius.testing.simulator \
	  --seed 1000000 --count 50000 --jobs 2 --ledger $(SOAK)

.PHONY: clean
clean: ## remove .venv, caches and build results
	rm -rf $(VENV) build dist htmlcov .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -path ./.git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
