# `make train` and `make test` need only Python 3.11 or later; everything else follows from them.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
TESTS ?= # folders of `make test-slow`; all of them
SLOW ?= slow # which tests `make test-slow` runs
BASE ?= HEAD # the commit that `make compare-losses` compares with
BESIDE ?= # options of pytest for `make test-slow`, such as -n 2: two tests at a time

# thousands of processes that tests start read what one of them has compiled
unexport PYTHONDONTWRITEBYTECODE

.PHONY: train test test-slow test-pytorch compare-losses fmt check bench docs docs-tools screenshots debian clean

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

train: $(VENV)/.ready
	$(BIN)/meshwright train

# several lanes at a time, most of which wait: tests/lanes.py
test: $(VENV)/.ready
	$(BIN)/python -m tests.lanes

test-slow: $(VENV)/.ready
	$(BIN)/python -m pytest $(BESIDE) -m "$(SLOW)" $(TESTS)

# the losses of small jobs with the package of the commit BASE and with this one, bit by bit
compare-losses: $(VENV)/.ready
	$(BIN)/python -m tests.compare_losses $(BASE)

test-pytorch: $(VENV)/.ready
	$(BIN)/python -m tests.external.pytorch_suite

fmt: $(VENV)/.ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

check: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/python -m docsite.links
	$(BIN)/mypy

$(VENV)/.docs: $(VENV)/.ready
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	touch $@

# what builds the site, for `make docs` and for the test that does the same
docs-tools: $(VENV)/.docs

docs: $(VENV)/.docs
	$(BIN)/python -m docsite --quick
	$(BIN)/mkdocs build --strict

# programs that some tests drive, which are skipped where they cannot be had: Chromium, hwloc, SLURM of Debian
debian:
	(command -v chromedriver && command -v lstopo && command -v slurmctld) >/dev/null || (apt-get update -qq && \
	apt-get install -y -qq --no-install-recommends chromium chromium-driver hwloc-nox slurm-wlm munge)

screenshots: $(VENV)/.ready
	rm -rf build/screenshots
	$(BIN)/meshwright train --ranks 2 --steps 60 --run-dir build/screenshots/two-ranks
	$(BIN)/meshwright emulate --nodes 2 --ranks-per-node 2 --nic 1Gbps -- $(CURDIR)/$(BIN)/python -m meshwright.train \
	--layout pp=2,dp=2,mbs=1,schedule=1f1b --steps 20 --run-dir build/screenshots/pipeline-on-two-nodes
	$(BIN)/python -m tests.browser.screenshots build/screenshots/two-ranks \
	build/screenshots/pipeline-on-two-nodes docs/images

bench: $(VENV)/.ready
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) build dist
