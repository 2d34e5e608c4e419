PYTHON ?= python3
VENV := .venv
BENCH := .venv-bench
BIN := $(VENV)/bin
PIP_INSTALL = -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: reproduce test test-all docs bench servers system-packages clean

reproduce: $(VENV)/.experiments  ## the paper's experiment: figure, tables, verdicts in results/paper
	$(BIN)/halfseen reproduce

test: $(VENV)/.test servers  ## style, types, layers, tests
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/pre-commit validate-config
	HALFSEEN_QUIET=1 $(BIN)/halfseen warmup
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

test-all: test  ## the same and the tests that take minutes
	$(BIN)/python -m pytest -n 2 -m slow

docs: $(VENV)/.docs  ## the documentation site in build/site, with the reference made from docstrings
	$(BIN)/sphinx-build --quiet --fail-on-warning --builder html docs build/site

bench: $(BENCH)/.peers  ## us beside our peers, in an environment of its own; JOBS="em-2000 …" for some of it
	$(BENCH)/bin/halfseen bench $(JOBS)

servers:  # what the tests start themselves and pip does not have
	@{ command -v chromium && { command -v postgres || ls /usr/lib/postgresql/*/bin/postgres; }; } >/dev/null 2>&1 || $(MAKE) system-packages

system-packages:  ## a PostgreSQL server and a browser for the tests to start; Debian, as root
	apt-get update --quiet
	apt-get install --yes --quiet --no-install-recommends postgresql chromium

clean:
	rm -rf $(VENV) $(BENCH) build dist

$(VENV)/pyvenv.cfg:
	$(PYTHON) -m venv $(VENV)

$(BENCH)/pyvenv.cfg:
	$(PYTHON) -m venv $(BENCH)

$(VENV)/.experiments: $(VENV)/pyvenv.cfg pyproject.toml constraints.txt
	$(BIN)/python $(PIP_INSTALL) -e ".[experiments]"
	touch $@

$(VENV)/.test: $(VENV)/pyvenv.cfg pyproject.toml constraints.txt
	$(BIN)/python $(PIP_INSTALL) -e ".[test]"
	touch $@ $(VENV)/.experiments

$(VENV)/.docs: $(VENV)/pyvenv.cfg pyproject.toml constraints.txt
	$(BIN)/python $(PIP_INSTALL) -e ".[docs]"
	touch $@

$(BENCH)/.peers: $(BENCH)/pyvenv.cfg pyproject.toml constraints.txt
	$(BENCH)/bin/python $(PIP_INSTALL) -e ".[peers]"
	$(BENCH)/bin/python $(PIP_INSTALL) -e ".[compiled-peers]" || echo "contextualbandits could not be built: left out"
	touch $@
