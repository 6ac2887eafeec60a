# `make up` and `make test` are all that a fresh machine needs: git, python3 (3.11 or newer) and make.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
RUN_STAMP := $(VENV)/.installed-to-run
# tests that run in parallel (they mostly wait: four on two cores); tests that measure time (`alone`) follow one by one
JOBS ?= 4

.PHONY: help setup up test check bench bench-compare chaos proof wheel docs proto clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 15

setup: $(STAMP) ## install everything into .venv (the other targets call it)

# Locked versions with hashes (requirements/, made by scripts/lock). The package itself is installed without looking at
# an index again.
PIP := $(BIN)/pip install --quiet --disable-pip-version-check
ITSELF := --no-deps --no-build-isolation --editable .

$(STAMP): pyproject.toml requirements/dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "leasehold needs Python 3.11 or newer: set PYTHON=...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --require-hashes --requirement requirements/dev.txt
	$(PIP) $(ITSELF)
	@touch $@

# `make up` on a fresh machine installs only the run-time requirements.
$(RUN_STAMP): pyproject.toml requirements/run.txt requirements/build.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "leasehold needs Python 3.11 or newer: set PYTHON=...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test $(STAMP) -nt pyproject.toml || { \
		$(PIP) --require-hashes --requirement requirements/run.txt --requirement requirements/build.txt && $(PIP) $(ITSELF); }
	@touch $@

up: $(RUN_STAMP) ## run Leasehold on this machine: everything embedded, on loopback
	@$(BIN)/leasehold up

test: setup ## every check and every test; fails if anything fails
	@scripts/system-deps
	@scripts/test

check: setup ## ruff, formatting, mypy --strict, import contracts, structure, word list
	@scripts/check

bench: setup ## figures beside those of the peers, also as JSON in .cache/bench (BENCH="index lock" for some)
	@$(BIN)/python -m bench $(BENCH)

bench-compare: setup ## name what got slower since BASE, a commit or folder (also BENCH="index calls", ROUNDS=5)
	@test -n "$(BASE)" || { echo 'usage: make bench-compare BASE=<commit or folder> [BENCH="index calls"] [ROUNDS=5]' >&2; exit 2; }
	@scripts/bench-compare --rounds $(or $(ROUNDS),5) $(BASE) $(BENCH)

chaos: setup ## faults on a real cluster, with a report (MINUTES=20), and long fault tests
	@scripts/system-deps
	@scripts/mooncake
	@scripts/framework-suites
	$(BIN)/leasehold chaos --minutes $(or $(MINUTES),20) --out .cache/chaos/report.html --history .cache/chaos/history.jsonl
	$(BIN)/python -m pytest -m chaos --timeout 1800

proof: setup ## very long searches: simulation, fuzzing, planted bugs (their table is written into docs/proof.md)
	@scripts/system-deps
	$(BIN)/python -m pytest -m proof --timeout 7200 -n 2
	$(BIN)/python -m tests.planted --write

wheel: setup ## the wheel and its SBOM in ./dist, built twice and compared
	@scripts/build-wheel

docs: setup ## the documentation as a site in ./site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

proto: setup ## generate the gRPC stubs from our .proto files
	$(BIN)/python scripts/generate-proto

clean: ## remove everything that was made here
	rm -rf $(VENV) .venv-* .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache site dist leasehold-data
