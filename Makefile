# Everything works from a fresh clone: each target makes .venv by itself and installs into it what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# One thread for matrix products: the tests are many and small.
export OPENBLAS_NUM_THREADS ?= 1

.PHONY: help demo test test-nightly lint format clean
help:
	@echo "make demo          convert, quantize and evaluate the bundled example in all three formats"
	@echo "make test          the tests, without the long ones"
	@echo "make test-nightly  all tests"
	@echo "make lint          ruff and mypy --strict"
	@echo "make format        let ruff sort imports and lay out the code"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "tpuconvert needs Python 3.11 or newer, $(PYTHON) is older: make PYTHON=/path/to/python3.11" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(READY): setup.cfg pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

demo: $(READY)
	$(BIN)/tpuconvert demo

test: $(READY)
	$(BIN)/pytest -q -m "not slow"

test-nightly: $(READY)
	$(BIN)/pytest -q --durations=20

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/python tools/package_view.py build/view
	$(BIN)/mypy -p tpuconvert
	$(BIN)/mypy tools
	$(BIN)/mypy examples/digits

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
