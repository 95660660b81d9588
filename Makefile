# Every target but help and clean works in .venv, which is made on first use and again when pyproject.toml changes.
PYTHON ?= python3
VENV ?= .venv
# The live tests mostly wait for the signs of a load to show, so there are more workers than cores.
WORKERS ?= 6

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-matrix check docs bench clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' Makefile

venv: $(STAMP) ## make the virtual environment (PYTHON=python3.12 chooses the interpreter)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "pgqdoctor needs Python 3.11 or later, and %s is %s: make PYTHON=/path/to/python3" % (sys.executable, sys.version.split()[0]))'
	@echo "installing pgqdoctor and its tools into $(VENV)"
	@if command -v uv >/dev/null 2>&1; then \
		uv venv --quiet --allow-existing --python "$(PYTHON)" "$(VENV)" && \
		uv pip install --quiet --python "$(BIN)/python" -e '.[dev]'; \
	else \
		"$(PYTHON)" -m venv "$(VENV)" && \
		"$(BIN)/python" -m pip install --quiet --disable-pip-version-check -e '.[dev]'; \
	fi
	@touch $@

demo: $(STAMP) ## start a PostgreSQL with a sick queue under load and diagnose it (SCENARIO=name chooses)
	@$(BIN)/python -m pgqdoctor demo $(SCENARIO)

# Tests that measure time come last, without company. Status 5 of pytest: ARGS chose none of that half.
PYTEST := $(BIN)/python -m pytest
MANY := -n $(WORKERS) --dist worksteal -m "not alone"
ALONE := -m alone

test: $(STAMP) ## all tests on one server version (ARGS= goes to pytest)
	$(PYTEST) $(MANY) $(ARGS) || [ $$? -eq 5 ]
	$(PYTEST) $(ALONE) $(ARGS) || [ $$? -eq 5 ]

test-matrix: $(STAMP) ## the server tests on every PostgreSQL version at hand
	PGQDOCTOR_TEST_MATRIX=1 $(PYTEST) $(MANY) tests/server $(ARGS) || [ $$? -eq 5 ]
	PGQDOCTOR_TEST_MATRIX=1 $(PYTEST) $(ALONE) tests/server $(ARGS) || [ $$? -eq 5 ]

check: $(STAMP) ## linters, types, import contracts, generated documents up to date
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PYTHONPATH=. $(BIN)/lint-imports
	$(BIN)/python -m pgqdoctor.docs --check

docs: $(STAMP) ## write the generated documents and the JSON Schema anew
	$(BIN)/python -m pgqdoctor.docs

bench: $(STAMP) ## time the doctor itself: starting, from each recording to a report, the dashboard with 500 sessions, the lab against bare pgbench
	@PYTHONPATH=. $(BIN)/python tests/bench.py
	@PYTHONPATH=. $(BIN)/python tests/bench_lab.py

clean: ## remove what was built, the virtual environment included
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
