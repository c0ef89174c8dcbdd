# Two commands are enough: `make demo` and `make test`. Each sets up .venv by itself, and again only when the pins change.
PYTHON ?= python3
BIN := .venv/bin
# test workers, of one thread each; each begins with a part of its own, so that what a file's tests share is made once
WORKERS ?= 2

.PHONY: demo test test-gpu chaos lint docs clean

demo: .venv/ready-plots
	$(BIN)/transduce demo

test: .venv/ready-test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

# the tests that need a GPU, one after the other; `make test` skips them, and hides the GPU from all others
test-gpu: .venv/ready-test
	$(BIN)/python -m pytest -m gpu

# kill -9 at 50 random moments; every time the run must go on and end as if nothing had happened
chaos: .venv/ready-test
	$(BIN)/python tests/chaos.py --kills 50

lint: .venv/ready-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: .venv/ready-docs
	$(BIN)/python -m sphinx -q -W --keep-going -c docs . site
	@echo "the book: site/docs/index.html"

clean:
	rm -rf .venv build dist site *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "transduce needs Python 3.11 or newer: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 2; }
	$(PYTHON) -m venv .venv

.venv/ready: pyproject.toml constraints.txt | .venv/bin/python
	@$(BIN)/python -c 'import torch' 2> /dev/null || \
	  echo "downloading into .venv: about 3 GB on Linux, where PyTorch brings CUDA, 0.3 GB on a Mac (README: without CUDA)"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	@touch $@

.venv/ready-%: pyproject.toml constraints.txt .venv/ready | .venv/bin/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[$*]"
	@touch $@
