# The one list of commands, for people and CI alike.  `make demo` and `make test` make .venv
# themselves; Python >= 3.11 with its venv module is all they need.
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)
VENV := .venv
BIN := $(VENV)/bin
SOURCES := pyproject.toml $(wildcard kernelspec/*)
PYTEST_ARGS ?=

.PHONY: help demo test lint format docs bench clean
.DELETE_ON_ERROR:

help:
	@echo "make demo    run examples/quickstart.ipynb on 4 ranks, headlessly"
	@echo "make test    every check: ruff, mypy, import contracts, pytest (PYTEST_ARGS=...)"
	@echo "make lint    the checks without pytest"
	@echo "make format  let ruff rewrite the code"
	@echo "make docs    rewrite the generated tables of README.md and docs"
	@echo "make bench   this kernel against bare kernels that one client drives; what folding costs (minutes)"
	@echo "make clean   remove .venv and build"

demo: $(VENV)/.demo
	$(BIN)/python examples/run.py examples/quickstart.ipynb --to build

test: lint
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(VENV)/.test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.test
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(VENV)/.test
	$(BIN)/python docs/generate.py

bench: $(VENV)/.test
	$(BIN)/python benchmarks/short.py
	$(BIN)/python -m benchmarks.fold

clean:
	rm -rf $(VENV) build dist

$(VENV)/.made:
	@test -n "$(PYTHON)" || { echo "no Python >= 3.11 found: make PYTHON=/path/to/python3" >&2; exit 1; }
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.demo: $(SOURCES) | $(VENV)/.made
	$(BIN)/python -m pip install --quiet --editable '.[demo]'
	touch $@

$(VENV)/.test: $(SOURCES) | $(VENV)/.made
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $@ $(VENV)/.demo
