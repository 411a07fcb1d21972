# make demo: install, translate a few sentences with the bundled models, show an alignment.
# make test: install, lint, type check, all tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
READY := $(VENV)/.ready-for-tests
# The constraints pin torch, so that a machine without a GPU does not pull gigabytes of CUDA packages.
PIP := $(BIN)/python -m pip install --quiet -c constraints.txt

.PHONY: demo test install clean

demo: $(INSTALLED)
	$(BIN)/sightline demo

test: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2 --durations 5

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Sightline needs Python 3.11 or newer; name one: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e .
	touch $@

$(READY): $(INSTALLED)
	$(PIP) -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
