# The one list of commands, for people and CI alike.  `make demo` and `make test` make .venv
# themselves; Python >= 3.11 with its venv module is all they need.
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)
VENV := .venv
BIN := $(VENV)/bin
SOURCES := pyproject.toml $(wildcard kernelspec/*)
EXTENSION := $(wildcard labextension/*.json labextension/yarn.lock labextension/style/* labextension/schema/*) \
	$(shell find labextension/src -type f)
PYTEST_ARGS ?=

.PHONY: help demo test lint format docs bench labextension clean
.DELETE_ON_ERROR:

help:
	@echo "make demo    run examples/quickstart.ipynb on 4 ranks, headlessly"
	@echo "make test    every check: ruff, mypy, import contracts, node's tests, pytest (PYTEST_ARGS=...)"
	@echo "make lint    the checks without pytest"
	@echo "make format  let ruff rewrite the code"
	@echo "make docs    rewrite the generated tables of README.md and docs"
	@echo "make labextension    build and test the JupyterLab extension (needs node)"
	@echo "make bench   this kernel against bare kernels that one client drives; what folding costs (minutes)"
	@echo "make clean   remove .venv and build"

demo: $(VENV)/.demo
	$(BIN)/python examples/run.py examples/quickstart.ipynb --to build

test: lint labextension
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

# The kernel needs no extension, and people without node need none.
labextension: $(VENV)/.test
	@if command -v node > /dev/null; then $(BIN)/python hatch_build.py; \
	elif [ "$$SPMD_REQUIRE_BROWSER" = 1 ]; then echo "node is missing" >&2; exit 1; \
	else echo "node is not installed: the JupyterLab extension is neither built nor tested"; fi

clean:
	rm -rf $(VENV) build dist

$(VENV)/.made:
	@test -n "$(PYTHON)" || { echo "no Python >= 3.11 found: make PYTHON=/path/to/python3" >&2; exit 1; }
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	touch $@

# Runs without a browser need no extension; building one would take a minute.  Kernels that start
# with PYTHONDONTWRITEBYTECODE would compile everything each time, unless it is done here.
$(VENV)/.demo: $(SOURCES) | $(VENV)/.made
	SPMD_LABEXTENSION=skip $(BIN)/python -m pip install --quiet --editable '.[demo]'
	$(BIN)/python -m compileall -q spmd_kernel
	touch $@

$(VENV)/.test: $(SOURCES) $(EXTENSION) | $(VENV)/.made
	SPMD_LABEXTENSION=$(if $(filter 1,$(SPMD_REQUIRE_BROWSER)),require) $(BIN)/python -m pip install --quiet --editable '.[test]'
	$(BIN)/python -m compileall -q spmd_kernel
	touch $@ $(VENV)/.demo
