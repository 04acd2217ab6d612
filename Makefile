# Everything a fresh machine with Python 3.11+, git, make and a C compiler needs: `make demo`, `make test`.
# PYTHON=/path/to/python3.12 chooses the interpreter; PYTEST_ARGS="-k share" narrows a test run.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.NOTPARALLEL: # two installations into one environment would meet
.PHONY: help venv setup native check audit test-fast test test-kubernetes test-long mutants fuzz bench demo lock clean

VENV := .venv
BIN := $(VENV)/bin
ALONE := $(VENV)/.pliant-done
STAMP := $(VENV)/.setup-done
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
SUPERVISOR := src/pliant/engines/local/bin/pliant-supervise
# Tests wait more than they compute: two processes for each core, and whoever is idle takes tests from the others.
WORKERS ?= $(shell n=$$(nproc); echo $$((n < 8 ? 2 * n : 16)))
RUN_TESTS = $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal
FUZZ_FLAGS := -std=gnu11 -g -O1 -fsanitize=fuzzer,address,undefined -Inative
FIND_PYTHON = for p in python3 python3.14 python3.13 python3.12 python3.11; do \
  $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$p; break; }; done
PYTHON ?= $(shell $(FIND_PYTHON))

help: ## what there is to make
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' Makefile | column -t -s '|' 2>/dev/null \
	  || sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1: \2/p' Makefile

venv: $(ALONE) native ## a virtual environment in .venv with Pliant alone (210 MB): enough to use it, and for the demo

setup: $(STAMP) native ## the same with every tool of development and torch (5 GB)

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Pliant needs Python 3.11 or newer; install it or say PYTHON=/path/to/python"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "$(PYTHON) cannot make a virtual environment (on Debian and Ubuntu: apt install python3-venv)"; exit 1; }

# Bytecode of what is used comes with the first use: of everything it would be 50 MB.
# hatchling beside Pliant: `native` compiles again with it, without asking the network.
$(ALONE): pyproject.toml constraints.txt hatch_build.py | $(BIN)/python
	@echo "Installing Pliant into $(VENV): about 210 MB"
	@$(INSTALL) --no-compile -e . hatchling
	@touch $@

$(STAMP): pyproject.toml constraints.txt hatch_build.py | $(BIN)/python
	@echo "Installing Pliant, its tools and torch into $(VENV): about 5 GB"
	@$(INSTALL) -e '.[dev]'
	@touch $(ALONE) $@

native: $(SUPERVISOR) ## the task supervisor, the GPU shim and the simulated drivers, in C

$(SUPERVISOR): $(wildcard native/*.[ch] native/*/*.[ch]) hatch_build.py | $(ALONE)
	@$(BIN)/python hatch_build.py
	@test ! -e $@ || touch $@

check: $(STAMP) ## style, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Tests start Python thousands of times; without bytecode files each of those compiles all of it anew.
test-fast test test-kubernetes test-long: export PYTHONDONTWRITEBYTECODE :=

test-fast: setup ## the inner loop, under 3 minutes: what plays no whole servers and jobs; ends with what it left out
	$(RUN_TESTS) -m "not long and not slow and not kubernetes" $(PYTEST_ARGS)

test: setup ## all tests that a build machine can run in 14 to 25 minutes; ends with what it left out
	$(RUN_TESTS) -m "not long and not kubernetes" $(PYTEST_ARGS)

test-kubernetes: setup ## the engine for Kubernetes on a real control plane, which is built once: 8 minutes, then 10
	PYTHON=$(abspath $(BIN))/python tests/kubernetes/setup
	$(RUN_TESTS) -m "not long" tests/kubernetes $(PYTEST_ARGS)

test-long: setup ## the tests that take minutes each, and new examples for all properties; PLIANT_SEED repeats
	@export PLIANT_SEED=$${PLIANT_SEED:-$$(( RANDOM * 32768 + RANDOM ))}; echo "PLIANT_SEED=$$PLIANT_SEED"; \
	  $(BIN)/python -m pytest -m "long or hypothesis" --hypothesis-profile=explore $(PYTEST_ARGS)

audit: setup ## bandit over the code, and whether any version in constraints.txt is known to be vulnerable
	@$(INSTALL) -e '.[audit]'
	$(BIN)/bandit --quiet --recursive --configfile pyproject.toml src
	$(BIN)/pip-audit --requirement constraints.txt --no-deps --disable-pip --strict

MUTANTS ?= pliant.sched.shares.ageing.*
mutants: setup ## small changes to the core, and which of them no test notices; MUTANTS='pliant.sched.shares.*' chooses
	@$(INSTALL) -e '.[mutants]'
	$(BIN)/mutmut run --max-children $(shell nproc) '$(MUTANTS)'
	@$(BIN)/mutmut results | grep -v 'not checked' || echo 'every one was noticed'

fuzz: setup ## random bytes as gpu.conf and ledger for FUZZ_SECONDS (600); needs clang (CLANG=clang-14)
	$(or $(CLANG),clang) $(FUZZ_FLAGS) -o $(VENV)/fuzz tests/shim/fuzz.c
	mkdir -p $(VENV)/corpus && $(VENV)/fuzz -max_total_time=$(or $(FUZZ_SECONDS),600) -max_len=8192 \
	  -artifact_prefix=$(VENV)/ $(VENV)/corpus

bench: setup ## the benchmarks, each against its named reference
	@set -e; for f in benchmarks/[a-z]*.py; do echo "== $$f"; $(BIN)/python $$f; done

demo: venv ## the main job, played in front of you
	$(BIN)/python examples/demo.py

lock: $(STAMP) ## write down the versions that are installed now
	@{ echo "# Versions that make setup installs; made by \`make lock\`."; \
	   $(BIN)/python -m pip freeze --exclude-editable; } > constraints.txt.new
	@mv constraints.txt.new constraints.txt && touch $(STAMP)

clean: ## remove what setup, tests and builds made
	rm -rf $(VENV) build dist src/pliant/engines/local/bin src/pliant/devices/bin .mypy_cache .pytest_cache .ruff_cache .hypothesis \
	  .import_linter_cache .benchmarks mutants
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
