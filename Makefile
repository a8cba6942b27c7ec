# Everything runs from a virtual environment that these targets make themselves: only Python 3.11+ and make are needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Tests at once: more than there are processors, for many of them wait.
RUN_JOBS ?= 4
# They start hundreds of processes, which shall find compiled modules and not compile them each.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help

help: ## list these commands
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /|/' | awk -F'|' '{printf "  make %-12s %s\n", $$1, $$2}'

# Everybody gets the versions of constraints.txt, whatever is newest today.
$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade -c constraints.txt pip
	$(BIN)/python -m pip install --quiet -c constraints.txt --build-constraint constraints.txt --editable . --group test
	@touch $@

$(VENV)/ready-check: $(VENV)/ready
	$(BIN)/python -m pip install --quiet -c constraints.txt --group check
	@touch $@

$(VENV)/ready-docs: $(VENV)/ready
	$(BIN)/python -m pip install --quiet -c constraints.txt --group docs
	@touch $@

$(VENV)/ready-audit: $(VENV)/ready
	$(BIN)/python -m pip install --quiet -c constraints.txt --group audit
	@touch $@

demo: $(VENV)/ready ## watch a few thousand jobs survive a killed worker (SQLite, under a minute)
	$(BIN)/holdfast demo

dev: $(VENV)/ready ## open the dashboard on a live load, with a button that kills a worker; PORT=8000
	$(BIN)/holdfast demo --ui --port $(or $(PORT),8000)

examples: $(VENV)/ready ## play the scenes of the example applications, each on a fresh SQLite file (a minute and a half)
	$(BIN)/python -m examples.claim_check scene
	$(BIN)/python -m examples.crawl scene
	$(BIN)/python -m examples.site_audit scene

check: $(VENV)/ready-check ## format, lint, types (mypy strict, pyright on the public API)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/basedpyright

test: $(VENV)/ready-check $(VENV)/ready-audit ## every test, on SQLite and PostgreSQL
	$(BIN)/python -m pytest -q -n $(RUN_JOBS) --dist worksteal --ignore tests/ha --ignore tests/browser

test-ha: $(VENV)/ready-check ## past one machine: failover, PgBouncer, silent networks, many workers (PgBouncer is installed with apt if it can be)
	command -v pgbouncer || ! command -v apt-get || { apt-get update -qq; apt-get install -qq --no-install-recommends pgbouncer; } || true
	$(BIN)/python -m pytest -q -n 2 tests/ha

test-browser: $(VENV)/ready-check ## the dashboard, the script for web pages and the examples' pages, in a real browser (Chromium is installed with apt if it can be)
	command -v chromium || command -v google-chrome || ! command -v apt-get || { apt-get update -qq; apt-get install -qq --no-install-recommends chromium; } || true
	$(BIN)/python -m pytest -q -n 2 tests/browser
	$(BIN)/python -m pytest -q tests/http/test_browser.py tests/examples/claim_check/test_page.py tests/examples/crawl/test_page.py tests/examples/site_audit/test_browser.py tests/examples/site_audit/test_page.py

test-16: $(VENV)/ready-check ## the store, the API and the worker once more, on PostgreSQL 16
	HOLDFAST_TEST_POSTGRES_VERSION=16 $(BIN)/python -m pytest -q -n $(RUN_JOBS) --dist worksteal tests/contract tests/api tests/work -k postgres

test-15: $(VENV)/ready-check ## the same on PostgreSQL 15, as Debian's package postgresql-15 installs it
	HOLDFAST_TEST_POSTGRES_VERSION=15 $(BIN)/python -m pytest -q -n $(RUN_JOBS) --dist worksteal tests/contract tests/api tests/work -k postgres

test-fast: $(VENV)/ready ## the tests that take seconds
	$(BIN)/python -m pytest -q -n $(RUN_JOBS) --ignore tests/crash --ignore tests/ha --ignore tests/browser --ignore tests/plans --ignore tests/types --ignore tests/docs --ignore tests/bench/test_figures.py

test-pythons: ## the fast tests on Python 3.11 to 3.14, those that are here or that uv can fetch: PYTHONS="3.13" for some
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet uv
	build/lock/bin/python -m scripts.pythons $(PYTHONS)

chaos: $(VENV)/ready ## workers under load and faults, judged from outside, and both sides of an adopted table: MINUTES=10 in all, SEED= to repeat, SLACK=6 beside other work
	$(BIN)/python -m tests.adopt.campaign --seconds $(or $(MINUTES),10)0 $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m tests.chaos --minutes $(or $(MINUTES),10) --slack $(or $(SLACK),1) $(if $(SEED),--seed $(SEED))

chaos-crawl: $(VENV)/ready ## crawl a real tree (Python's documentation, installed with apt if it can be) and kill the crawl 20 times, on both engines: SEED= to repeat (5 minutes)
	test -d /usr/share/doc/python3.11/html || ! command -v apt-get || { apt-get update -qq; apt-get install -qq --no-install-recommends python3.11-doc; } || true
	$(BIN)/python -m tests.examples.crawl.killing $(or $(TREE),/usr/share/doc/python3.11/html) --engine sqlite $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m tests.examples.crawl.killing $(or $(TREE),/usr/share/doc/python3.11/html) --engine postgres $(if $(SEED),--seed $(SEED))

chaos-stops: $(VENV)/ready ## the crash tests with two hundred shutdowns of workers with runner processes (about 20 minutes)
	HOLDFAST_CHAOS=100 $(BIN)/python -m pytest -q -n $(RUN_JOBS) tests/crash

fuzz: $(VENV)/ready ## a million hostile frames from handlers to their worker: FRAMES=, SEED= to repeat; thousands of hostile names of tables, and of reports of a model; 5,000 HTTP requests, REQUESTS= (about 30 minutes)
	HOLDFAST_NAMES=3000 $(BIN)/python -m pytest -q tests/adopt/test_identifiers.py
	$(BIN)/python -m tests.fuzz --frames $(or $(FRAMES),1000000) $(if $(SEED),--seed $(SEED))
	HOLDFAST_REPORTS=20000 $(BIN)/python -m pytest -q tests/examples/claim_check/test_report.py
	HOLDFAST_FUZZ_REQUESTS=$(or $(REQUESTS),5000) $(BIN)/python -m pytest -q -n $(RUN_JOBS) tests/http/test_openapi.py

mutants: $(VENV)/ready ## plant bugs in copies of the code, one at a time: does the test named for each fail? (about 10 minutes)
	$(BIN)/python -m scripts.mutants

mutants-chaos: $(VENV)/ready ## plant those that can be seen from outside, and put each under fire: does the campaign see it? (about 40 minutes)
	$(BIN)/python -m scripts.mutants --campaign

pictures: $(VENV)/ready ## every page of the dashboard in light, dark and at 390 pixels, in build/pictures; the best go into docs/pictures (3 minutes)
	command -v chromium || command -v google-chrome || ! command -v apt-get || { apt-get update -qq; apt-get install -qq --no-install-recommends chromium; } || true
	! command -v apt-get || apt-get install -qq --no-install-recommends fonts-inter fonts-jetbrains-mono || true
	$(BIN)/python -m scripts.pictures.camera

docs: $(VENV)/ready-docs ## the documentation as a site, in site/; broken links fail
	$(BIN)/python -m scripts.lifecycle
	$(BIN)/python -m scripts.guarantees
	$(BIN)/python -m scripts.settings
	$(BIN)/zensical build --clean --strict

lock: ## constraints.txt anew: the newest versions of all we install, for every Python and platform (uv finds them)
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet uv
	build/lock/bin/python -m scripts.lock

audit: $(VENV)/ready-audit ## are vulnerabilities known of what is installed? And the licences of what we need
	$(BIN)/python -m scripts.audit

sbom: $(VENV)/ready-audit ## what comes along with the wheel, as CycloneDX JSON in dist/
	$(BIN)/python -m scripts.sbom dist/holdfast.cdx.json

bench: $(VENV)/ready ## measure this machine: raw limits, ourselves, ratios, bars (about 4 minutes)
	$(BIN)/python -m bench

bench-long: $(VENV)/ready ## also million-row tables, memory and a pinned snapshot (about half an hour)
	$(BIN)/python -m bench --long

bench-peers: $(VENV)/ready ## measure other job systems beside ours, in turns: who wins each row (about 20 minutes)
	$(BIN)/python -m bench.peers

.PHONY: help demo dev examples pictures check lock audit sbom chaos chaos-crawl chaos-stops mutants mutants-chaos docs test test-15 test-16 test-ha test-browser test-fast test-pythons bench bench-long bench-peers fuzz
