# `make train` and `make test` need only Python 3.11 or later; everything else follows from them.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: train test test-slow test-pytorch fmt check bench clean

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

train: $(VENV)/.ready
	$(BIN)/meshwright train

test: $(VENV)/.ready
	$(BIN)/python -m pytest -m "not slow"

test-slow: $(VENV)/.ready
	$(BIN)/python -m pytest -m slow

test-pytorch: $(VENV)/.ready
	$(BIN)/python -m tests.external.pytorch_suite

fmt: $(VENV)/.ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

check: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.ready
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) build dist src/*.egg-info
