# `make help` lists what can be done here.
.DEFAULT_GOAL := help
.PHONY: help up docs test on-sqlite on-postgres in-browser faults storm nightly conformance lint style types imports migrations unsafe audit size format bench services schema lock clean base dev

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BENCH_VENV := .venv-bench
PIP_OPTIONS := install --quiet --disable-pip-version-check --no-input --require-hashes
PIP_INSTALL := $(BIN)/python -m pip $(PIP_OPTIONS)
# To compile all that is installed takes a third of the time, and Python compiles what it imports, unless it may not keep it.
COMPILE_LATER = $(if $(PYTHONDONTWRITEBYTECODE),,--no-compile)
LOCK := $(BIN)/uv pip compile --quiet --generate-hashes --universal --python-version 3.11 \
	--no-emit-index-url --no-annotate --no-header

help: ## List these commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up: base ## Start ToolFlow on this machine (PORT=8001 for another port)
	@$(BIN)/python manage.py up $(if $(PORT),--port $(PORT)) $(ARGS)

# What a choice of tests leaves empty (exit status 5) is no failure. Tests that kill and wait leave a core to others:
# more of them than there are cores, and those left at the end are shared out again. Each process collects tests for ten
# seconds: where it is known that a folder has none of a kind, it is not looked through, nor is schemathesis loaded for
# nothing. What make tells those that it starts is not for the makes that tests start.
RUN_TESTS = unset MAKEFLAGS MFLAGS MAKELEVEL; $(BIN)/python -m pytest $(ARGS)
NO_DATABASE = -p no:schemathesis $(addprefix --ignore=tests/,engine client browser faults $(CONFORMANCE))
NO_BROWSER = -p no:schemathesis $(addprefix --ignore=tests/,engine client api faults flows runs security)
NO_CONFORMANCE = $(if $(TOOLFLOW_TEST_LONG),,-p no:schemathesis $(addprefix --ignore=tests/,$(CONFORMANCE)))
CONFORMANCE = api/test_conformance.py
NO_FAILURE = code=$$?; [ $$code -eq 0 ] || [ $$code -eq 5 ]

# In a fresh clone each process of the first part compiles the tests for itself: it is one of few processes. With “--jobs 2”
# what takes longest is still begun at once.
test: dev ## Run all tests that this machine has the parts for (ARGS="…" for pytest)
	@$(MAKE) --no-print-directory --keep-going on-postgres on-sqlite in-browser

on-sqlite: dev
	@echo "All tests without a browser, on SQLite:"
	@unset DATABASE_URL; $(RUN_TESTS) -n 4 --dist worksteal --ignore=tests/browser $(NO_CONFORMANCE) -m "not browser"; $(NO_FAILURE)

on-postgres: dev
	@url=$$($(BIN)/python -m tests.availability postgres) || exit 1; [ -n "$$url" ] || exit 0; \
	echo "The tests of what databases themselves do, on PostgreSQL:"; \
	export DATABASE_URL=$$url; $(RUN_TESTS) -n auto $(NO_DATABASE) -m $(if $(TOOLFLOW_TEST_LONG),"database and not browser",sql); $(NO_FAILURE)

in-browser: dev
	@echo "The tests with a browser:"
	@unset DATABASE_URL; $(RUN_TESTS) -n 3 $(NO_BROWSER) -m browser; $(NO_FAILURE)

faults: dev ## Kill workers, databases and brokers for long (KILLS=1000 RUNS=2000 PACE=1)
	@unset DATABASE_URL; status=0; \
	TOOLFLOW_TEST_LONG=1 $(BIN)/python -m pytest tests/faults $(ARGS) || status=1; \
	$(MAKE) --no-print-directory storm || status=1; \
	exit $$status

storm: dev
	@unset DATABASE_URL; \
	$(BIN)/python -m tests.faults $(if $(KILLS),--kills $(KILLS)) $(if $(RUNS),--runs $(RUNS)) $(if $(PACE),--pace $(PACE))

nightly: dev ## All tests, those that take too long for every change among them, and a long storm of kills
	@TOOLFLOW_TEST_LONG=1 $(MAKE) --no-print-directory --keep-going test storm

conformance: dev ## Hold the API against its own description with 2,000 invented requests for each role, about ten minutes
	@unset DATABASE_URL; TOOLFLOW_TEST_LONG=1 $(BIN)/python -m pytest tests/api/test_conformance.py -n auto $(ARGS)

lint: style types imports migrations unsafe size docs ## Check style, types, imports, migrations, safety, size and documentation

# The checks start commands too: none of them should read the developer's own settings or data.
style types imports migrations: export TOOLFLOW_DATA_DIR := $(CURDIR)/$(VENV)/lint-data
style types imports migrations: export TOOLFLOW_ENV_FILE := /dev/null
style types imports migrations: export DATABASE_URL :=

style: dev
	$(BIN)/ruff check --output-format concise .
	$(BIN)/ruff format --check .

types: dev
	$(BIN)/mypy

imports: dev
	$(BIN)/lint-imports

migrations: dev
	$(BIN)/python manage.py makemigrations --check --dry-run
	$(BIN)/python manage.py check --fail-level WARNING

unsafe: dev
	$(BIN)/bandit --quiet --configfile pyproject.toml --recursive flows runs toolflow_site

# A package that the database of holes can't be asked about is a failure, too.
audit: dev ## Check dependencies for known vulnerabilities (uses the network)
	$(BIN)/pip-audit --strict --disable-pip $(foreach name,base scale oidc tracing,--requirement requirements/$(name).txt)

size: dev ## Measure the code by area; it may not grow (ARGS="--areas", "--lower")
	$(BIN)/python scripts/measure_size.py $(ARGS)

format: dev ## Format the code and fix what ruff can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: dev ## Build the documentation as a site, into .venv/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

bench: dev $(BENCH_VENV)/bin/pip ## Measure, side by side with peers: about five minutes (ARGS="--help" for choices)
	@cmp -s requirements/bench.txt $(BENCH_VENV)/bench.txt || { \
		echo "Installing the peers into $(BENCH_VENV) …" && \
		$(BENCH_VENV)/bin/python -m pip $(PIP_OPTIONS) -r requirements/bench.txt && \
		cp requirements/bench.txt $(BENCH_VENV)/; }
	@$(BIN)/python -m benchmarks $(ARGS)

# The peers' versions must not hold back ours, nor ours theirs.
$(BENCH_VENV)/bin/pip:
	@$(PYTHON) -m venv $(BENCH_VENV)

services: ## Install and start PostgreSQL, Redis and Chromium for the tests (Debian, as root)
	@scripts/start_services

schema: export TOOLFLOW_DATA_DIR := $(CURDIR)/$(VENV)/lint-data
schema: export TOOLFLOW_ENV_FILE := /dev/null
schema: dev ## Regenerate docs/flow.schema.json and docs/openapi.yaml
	$(BIN)/python scripts/write_flow_schema.py
	$(BIN)/python scripts/write_api_schema.py

lock: dev ## Pin what requirements/*.in ask for (ARGS=--upgrade for newer versions)
	$(LOCK) $(ARGS) requirements/base.in -o requirements/base.txt
	for extra in scale oidc tracing; do \
		$(LOCK) $(ARGS) -c requirements/base.txt requirements/$$extra.in -o requirements/$$extra.txt || exit; \
	done
	$(LOCK) $(ARGS) requirements/dev.in -o requirements/dev.txt
	$(LOCK) $(ARGS) requirements/bench.in -o requirements/bench.txt

clean: ## Remove the virtual environments and all caches; var/ stays
	rm -rf $(VENV) $(BENCH_VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis test-results

$(BIN)/pip:
	@command -v $(PYTHON) >/dev/null || { echo "ToolFlow needs Python 3.11 or later, and there is no $(PYTHON) here." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else "ToolFlow needs Python 3.11 or later, but $(PYTHON) is %d.%d. Name another one: make up PYTHON=python3.12" % v[:2])'
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "Python’s venv module is incomplete here; on Debian and Ubuntu, “apt install python3-venv” completes it." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

# A copy of the lock that is installed lies in the virtual environment: nothing is installed while it is the same.
base: $(BIN)/pip
	@cmp -s requirements/base.txt $(VENV)/base.txt || { \
		echo "Installing what ToolFlow needs into $(VENV) …" && \
		$(PIP_INSTALL) -r requirements/base.txt && \
		cp requirements/base.txt $(VENV)/base.txt; }

dev: $(BIN)/pip
	@cmp -s requirements/dev.txt $(VENV)/dev.txt || { \
		echo "Installing what the checks and tests need into $(VENV) …" && \
		$(PIP_INSTALL) $(COMPILE_LATER) -r requirements/dev.txt && \
		cp requirements/dev.txt requirements/base.txt $(VENV)/; }
