# make          set everything up in .venv
# make serve    … and serve a model
# make help     what else there is

PYTHON ?= python3
MODEL  ?=
PORT   ?= 8000
HOST   ?= 127.0.0.1
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.DEFAULT_GOAL := setup
.PHONY: setup serve chat test test-slow check format bench requirements lock clean help

setup: $(STAMP) ## create .venv and install everything that is pinned in requirements.lock

# The versions come from the lock; callsmith itself is installed without asking for dependencies again.
$(STAMP): requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	touch $@

serve: $(STAMP) ## serve a model: make serve MODEL=smollm2-135m PORT=8000
	exec $(BIN)/callsmith serve $(if $(MODEL),--model "$(MODEL)") --host $(HOST) --port $(PORT)

chat: $(STAMP) ## talk to a model in the terminal
	exec $(BIN)/callsmith chat $(if $(MODEL),--model "$(MODEL)")

test: $(STAMP) ## run the tests that take seconds: make test ARGS="-k parse"
	$(BIN)/python -m pytest $(ARGS)

test-slow: $(STAMP) ## run the tests that take minutes
	$(BIN)/python -m pytest -m slow $(ARGS)

check: $(STAMP) ## lint, formatting, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: $(STAMP) ## put the code into its format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP) ## measure
	$(BIN)/python -m benchmarks $(ARGS)

requirements: $(STAMP) ## bring docs/requirements.md up to date with the tests
	$(BIN)/python -m tests.requirements

lock: $(STAMP) ## pin the newest versions that pyproject.toml allows
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip compile pyproject.toml --all-extras --group dev --universal --upgrade --quiet \
		--no-header --no-annotate --output-file requirements.lock

clean: ## remove .venv and everything that was made
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18
