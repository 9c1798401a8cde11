# Everything sets itself up: a virtual environment in .venv, with what each target needs and nothing more.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One more than there are cores: a third of the tests wait for something.
WORKERS ?= $(shell expr $$(nproc 2>/dev/null || echo 2) + 1)

# Tests start thousands of processes: where nothing compiled may be kept, each would compile all of flyball anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-fast chromium promtool lint bench docs screenshots pictures clean
.DEFAULT_GOAL := help

help:
	@echo "make demo   agents that go wrong in the usual ways: what becomes of each, told in a minute, and the page"
	@echo "make test   run all tests"
	@echo "make lint   ruff, mypy --strict, import contracts"
	@echo "make bench  speed beside peers, as ratios"
	@echo "make docs   build the documentation site into site/"
	@echo "make screenshots  make the pictures of page, terminal and simulations anew, from a real daemon"

$(VENV)/python:
	$(PYTHON) -c 'import sys; sys.exit("flyball needs Python 3.11 or newer; this is " + sys.version.split()[0] + " (set PYTHON=...)" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	touch $@

# One stamp per dependency group; each is made anew when pyproject.toml changes.
$(VENV)/base: $(VENV)/python pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	touch $@

# What the tour needs beside it: so that a newcomer sees all of it. The base install stays small.
$(VENV)/demo: $(VENV)/base
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[langgraph,rules]'
	touch $@

$(VENV)/dev $(VENV)/bench $(VENV)/docs: $(VENV)/%: $(VENV)/base
	$(BIN)/pip install --quiet --disable-pip-version-check --group $*
	touch $@

# Where there is no terminal it ends when the tour is over, with 0 if every unit ended as it should.
demo: $(VENV)/demo
	$(BIN)/flyball demo

# For the tests of the browser. Where there is none and none can be installed, they are skipped.
chromium: $(VENV)/dev
	@$(BIN)/python -m tools.chromium

# For the tests of metrics and alert rules, likewise.
promtool: $(VENV)/dev
	@$(BIN)/python -m tools.promtool

test: $(VENV)/dev chromium promtool
	$(BIN)/python -m pytest -n $(WORKERS)

test-fast: $(VENV)/dev chromium promtool
	$(BIN)/python -m pytest -n $(WORKERS) -m "not slow"

lint: $(VENV)/dev $(VENV)/bench
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

bench: $(VENV)/dev $(VENV)/bench
	$(BIN)/python -m bench

docs: $(VENV)/docs
	for page in settings commands codes metrics api architecture; do $(BIN)/python tools/$${page}_reference.py || exit 1; done
	$(BIN)/mkdocs build --quiet --strict

# The pictures in docs/pictures/, from a real daemon, a real terminal and a real Chromium. It takes a minute.
screenshots: $(VENV)/dev chromium pictures
	$(BIN)/python -m tools.screenshots

# Those that need no browser: what `flyball simulate` draws.
pictures: $(VENV)/dev
	$(BIN)/python -m tools.simulate_pictures

clean:
	rm -rf $(VENV) site build dist .mypy_cache .ruff_cache .hypothesis
