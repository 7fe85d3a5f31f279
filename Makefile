# Everything that a developer types. `make` alone explains.

SHELL := /bin/sh
.DEFAULT_GOAL := help

PYTHON ?= python3
BIN := .venv/bin
# One of them has the Spark session; where most tests need one, all have (tests/one_jvm.py).
WORKERS ?= 2
STAMP := .venv/.installed
# Tests start many processes, which load what the first one has compiled.
export PYTHONDONTWRITEBYTECODE =
# Less than all: what `make demo` needs, where there was no `make setup` yet.
DEMO_STAMP := .venv/.demo-installed
DOCS_STAMP := .venv/.docs-installed
# By file, as its tests share a queue, and all tests on Spark to one worker (tests/one_jvm.py); in the order
# of testpaths, not the file of most tests first: those are the short ones.
PYTEST = $(BIN)/python -m pytest --dist loadfile --no-loadscope-reorder
# Each test is in one of three parts: what proves the product, what is left to test-rest, and what is left
# of large grids.
QUICK = not thorough and not nightly
REST = thorough and not nightly
NIGHTLY = nightly
# Spark Connect is left to test-rest: what is about it alone, and of the cases one module for each kind of
# tube, and for sessions; the verbs do not know which kind of session they run in.
CASES = $(wildcard tests/acceptance/test_case_*.py)
CASES_ON_CONNECT = $(patsubst %,tests/acceptance/test_case_%.py, \
	000_queue 010_fifo 030_utube 100_limfifottl)
ON_CONNECT = not nightly and (connect or not thorough)
# Older pairs of pyspark and delta-spark, the oldest first; each has an environment under .compat.
PAIRS ?= 4.0.1-4.0.1 4.0.2-4.4.0 4.1.1-4.2.0 4.1.3-4.4.0
# What the oldest has of the other packages: the oldest that pyproject.toml allows.
OLDEST = 'filelock==3.15.*' 'pyarrow==18.*'
# Old pysparks leave sockets to the garbage collector.
ON_OLD_SPARK = -W ignore::ResourceWarning -W ignore::pytest.PytestUnraisableExceptionWarning
# Where Spark itself looks for Java.
JAVA := $(if $(JAVA_HOME),$(JAVA_HOME)/bin/java,java)

.PHONY: help setup demo check fmt test test-unit test-rest test-nightly test-all test-connect test-model test-stores test-compat wheel bench docs clean java

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1@\2/p' $(firstword $(MAKEFILE_LIST)) \
		| while IFS=@ read -r target text; do printf '%-18s %s\n' "$$target" "$$text"; done

setup: $(STAMP) ## Install everything into .venv (once; again when pyproject.toml changes)

demo: $(if $(wildcard $(STAMP)),$(STAMP),$(DEMO_STAMP)) ## Crawl 2,000 pages of three local web servers through the queue
	@rm -rf build/demo
	@$(BIN)/python jobs/demo.py --location build/demo

check: setup ## Format, lint, types, import rules: all that needs no Spark
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

fmt: setup ## Format the code and fix what ruff can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: java setup ## Run the tests that prove the product
	$(PYTEST) -n $(WORKERS) -m "$(QUICK) and not connect" $(ARGS)

test-rest: java setup ## Run all tests that make test leaves out, some cases on Spark Connect, too
	@status=0; \
	$(if $(ARGS),,$(PYTEST) --connect -n $(WORKERS) -m "$(ON_CONNECT)" \
		tests/connect $(CASES_ON_CONNECT) || status=1;) \
	TUBEQ_TESTS_JVMS=all $(PYTEST) -n $(WORKERS) -m "$(REST) and not connect" $(ARGS) || status=1; \
	exit $$status

test-all: ## Run all tests, on classic Spark and on Spark Connect
	@status=0; \
	$(MAKE) test || status=1; \
	$(MAKE) test-rest || status=1; \
	$(MAKE) test-nightly || status=1; \
	exit $$status

test-nightly: java setup ## Run the rest of the large grids of cases, and two drivers on each platform
	TUBEQ_TESTS_JVMS=all $(PYTEST) -n $(WORKERS) -m "$(NIGHTLY)" $(ARGS)

test-connect: java setup ## Run the tests of all cases on Spark Connect
	$(PYTEST) --connect -n $(WORKERS) $(or $(ARGS),tests/connect $(CASES))

test-unit: setup ## Run the tests that need no Spark, and the cases without it
	@status=0; \
	$(PYTEST) -n $(WORKERS) --engine memory tests/unit $(CASES) $(ARGS) || status=1; \
	$(PYTEST) -n $(WORKERS) -m "$(QUICK)" --engine native $(CASES) $(ARGS) || status=1; \
	exit $$status

test-model: setup ## Judge 400 plans of the simulation on local files
	TUBEQ_PLANS=$(or $(PLANS),400) $(BIN)/python -m pytest --engine native -n $(WORKERS) tests/stateful $(ARGS)

# They are installed below build/stores when they are first needed.
test-stores: setup ## Run some tests on Azurite, fake-gcs-server and versitygw, which need npm and Go
	$(BIN)/python -m pytest tests/stores $(ARGS)

test-compat: java $(PAIRS:%=.compat/%/.installed) ## Run a choice of tests on older Sparks and Deltas
	@status=0; \
	for pair in $(PAIRS); do \
		output=.compat/$$pair/output; failed=; \
		printf 'pyspark %s, delta-spark %s: ' "$${pair%-*}" "$${pair#*-}"; \
		.compat/$$pair/bin/python -m pytest -q -p no:cacheprovider --engine spark $(ON_OLD_SPARK) \
			@tests/compat.txt $(ARGS) >$$output 2>&1 || failed=1; \
		tail -n 1 $$output; \
		test -z "$$failed" || { status=1; cat $$output >&2; }; \
	done; \
	exit $$status

wheel: setup ## Build the wheel that --py-files takes, in dist
	@$(BIN)/python -m hatchling build --target=wheel

bench: java setup ## Measure a queue beside its bare commits, SQLite and Postgres
	@$(BIN)/python -m bench $(ARGS)

# Without its sentence on other programs of its makers.
docs: $(DOCS_STAMP) ## Build the documentation into build/docs; a warning is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

clean: ## Remove caches and what Spark leaves behind (.venv stays)
	rm -rf build dist *.egg-info .hypothesis .import_linter_cache .mypy_cache \
		.pytest_cache .ruff_cache spark-warehouse metastore_db derby.log
	find jobs notebooks tests tubeq_spark -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

java:
	@version=$$("$(JAVA)" -version 2>&1) || { \
		echo "Spark needs Java 17 or newer and there is none: install one" \
			"(on Debian and Ubuntu openjdk-17-jre-headless) or set JAVA_HOME to it." >&2; \
		exit 1; \
	}; \
	major=$$(echo "$$version" | sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p' | head -n 1); \
	if [ "$${major:-17}" -lt 17 ]; then \
		echo "Spark needs Java 17 or newer and this is Java $$major: install one" \
			"(on Debian and Ubuntu openjdk-17-jre-headless) or set JAVA_HOME to it." >&2; \
		exit 1; \
	fi

define new_environment
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Python 3.11 or newer is needed; choose one by make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; \
		exit 1; \
	}
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
endef

$(STAMP): pyproject.toml
	$(new_environment)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# What it downloads is shown: it is the first thing that somebody sees of the project. Nothing is compiled
# ahead, as most of it is never imported.
$(DEMO_STAMP): pyproject.toml
	@echo "Installing what the demo needs into .venv: some 360 MB, neither Spark nor test tools"
	$(new_environment)
	$(BIN)/python -m pip install --no-compile --disable-pip-version-check --editable '.[demo]'
	@touch $@

$(DOCS_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

.compat/%/.installed: pyproject.toml | java
	@test -x .compat/$*/bin/python || $(PYTHON) -m venv .compat/$*
	.compat/$*/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[test]' \
		pyspark==$(firstword $(subst -, ,$*)) delta-spark==$(lastword $(subst -, ,$*)) \
		$(if $(filter 4.0.1-4.0.1,$*),$(OLDEST))
	@touch $@
