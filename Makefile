# Each target does its own set-up: a virtual environment in .venv, made once and again when what it installs changes.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
BROWSER := $(VENV)/.browser

.PHONY: help demo test test-browser lint format bench fuzz clean

help:            ## this list
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/'

demo: $(READY)   ## every experiment on four real processes, at sizes cut for it; writes runs/<UTC>/
	@$(BIN)/rsag run --preset demo

test: $(READY)   ## the whole suite, real processes included
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

test-browser: $(BROWSER) ## the report page in Debian's chromium; installs playwright and, where it is missing, chromium
	@$(BIN)/python -m pytest tests/browser $(PYTEST_ARGS)

lint: $(READY)   ## ruff, mypy --strict, the layers
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports --no-cache

format: $(READY) ## let ruff lay the code out
	@$(BIN)/ruff check --fix . && $(BIN)/ruff format .

bench: $(READY)  ## every promise about speed, as figures
	@for script in benchmarks/*.py; do $(BIN)/python $$script || exit 1; done

fuzz: $(READY)   ## every trace reader on a minute of inputs that libFuzzer grows; needs a Python that atheris has a wheel for
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary :all: -c constraints.txt atheris
	@$(BIN)/python tests/fuzz/fuzz_readers.py -max_total_time=60 -timeout=10 -rss_limit_mb=2048 -artifact_prefix=$(VENV)/

clean:           ## forget the environment and the caches
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(READY): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) ..." >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[torch,dev]'
	@touch $@

$(BROWSER): $(READY)
	@command -v chromium >/dev/null || apt-get install -y --no-install-recommends chromium
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[browser]'
	@touch $@
