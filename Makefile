# Everything sets itself up: a virtual environment in .venv, with what each target needs and nothing more.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One more than there are cores: a third of the tests wait for something.
WORKERS ?= $(shell expr $$(nproc 2>/dev/null || echo 2) + 1)

# Tests start thousands of processes: where nothing compiled may be kept, each would compile all of flyball anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-fast chromium promtool lint bench docs screenshots clean
.DEFAULT_GOAL := help

help:
	@echo "make demo   a fleet of agents that go wrong in the usual ways, and the page on which to put it right"
	@echo "make test   run all tests"
	@echo "make lint   ruff, mypy --strict, import contracts"
	@echo "make bench  speed beside peers, as ratios"
	@echo "make docs   build the documentation site into site/"
	@echo "make screenshots  make the pictures of the page anew, from a real daemon"

$(VENV)/python:
	$(PYTHON) -c 'import sys; sys.exit("flyball needs Python 3.11 or newer; this is " + sys.version.split()[0] + " (set PYTHON=...)" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	touch $@

# One stamp per dependency group; each is made anew when pyproject.toml changes.
$(VENV)/base: $(VENV)/python pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(VENV)/dev $(VENV)/bench $(VENV)/docs: $(VENV)/%: $(VENV)/base
	$(BIN)/pip install --quiet --disable-pip-version-check --group $*
	touch $@

demo: $(VENV)/base
	$(BIN)/python examples/night

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
	$(BIN)/python tools/settings_reference.py
	$(BIN)/python tools/codes_reference.py
	$(BIN)/mkdocs build --quiet --strict

# The pictures in docs/pictures/, from a real daemon and a real Chromium. It takes a minute.
screenshots: $(VENV)/dev chromium
	$(BIN)/python -m tools.screenshots

clean:
	rm -rf $(VENV) site build dist .mypy_cache .ruff_cache .hypothesis
