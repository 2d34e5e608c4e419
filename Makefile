PYTHON ?= python3
VENV := .venv
BENCH := .venv-bench
BIN := $(VENV)/bin
PIP_INSTALL = -m pip install --quiet --disable-pip-version-check -c constraints.txt

# Several processes run the tests, so each of them computes with one thread. Three keep two cores busy, because some
# tests wait for other processes.
test test-all: export OPENBLAS_NUM_THREADS = 1

.PHONY: reproduce test test-all soak soak-numerical fuzz-service docs bench programs system-packages clean

reproduce: $(VENV)/.experiments  ## run the paper's experiment and write figure, tables and verdicts to results/paper
	$(BIN)/halfseen reproduce --map-seeds 40

test: $(VENV)/.test programs  ## check style, types and layers, run the tests that take seconds, report the coverage
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/pre-commit validate-config
	HALFSEEN_QUIET=1 $(BIN)/halfseen warmup
	$(BIN)/python -m pytest -n 3 --dist worksteal -m "not slow" --cov --cov-report=
	@echo "Coverage: the files in which less than 80 % of the lines ran, and the total"
	@$(BIN)/coverage report | awk '/^TOTAL/ || /%$$/ && $$NF + 0 < 80'

test-all: test  ## the same, then the tests that take minutes
	$(BIN)/python -m pytest -n 2 -m slow

soak: $(VENV)/.test programs  ## cause random faults under load for HOURS and check that nothing acknowledged is lost
	$(BIN)/python tests/service/faults/soak.py --hours $(or $(HOURS),1)

docs: $(VENV)/.docs  ## build the documentation site in build/site
	$(BIN)/sphinx-build --quiet --fail-on-warning --builder html docs build/site

ROUNDS ?= 1e7
soak-numerical: $(VENV)/.test  ## play ROUNDS rounds of all agents on extreme inputs and check every decision
	PYTHONPATH=tests $(BIN)/python -m contracts.numerical_soak --rounds $(ROUNDS)

REQUESTS ?= 100000
fuzz-service: $(VENV)/.test  ## send REQUESTS random requests, valid and broken, to a service on SQLite
	PYTHONPATH=tests $(BIN)/python -m service.fuzz --requests $(REQUESTS)

bench: $(BENCH)/.peers  ## compare with other libraries, in a separate environment; JOBS="em-2000 …" chooses jobs
	$(BENCH)/bin/halfseen bench $(JOBS)

# The tests leave out what needs a missing program, or fail if CI is set. See tests/programs.py.
programs: $(VENV)/.test  ## as root on Debian, install the programs that the tests start, if they are missing
	@$(BIN)/python tests/programs.py || \
	if test "$$(id -u)" = 0 && command -v apt-get >/dev/null; then $(MAKE) system-packages || true; fi

system-packages:  ## install a PostgreSQL server and Chromium, as root on Debian
	apt-get update --quiet
	apt-get install --yes --quiet --no-install-recommends postgresql chromium

clean:
	rm -rf $(VENV) $(BENCH) build dist .coverage*

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
