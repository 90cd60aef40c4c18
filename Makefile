# Needs make and Python 3.11 or newer with its venv module. Everything else comes from the package registry
# that pip is configured for; no host is named here, and pip's own configuration is honoured throughout.

.DEFAULT_GOAL := help
.PHONY: help setup run models test test-slow lint bench clean

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
IS_NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(firstword $(foreach each,python3.13 python3.12 python3.11 python3, \
  $(shell $(each) -c '$(IS_NEW_ENOUGH)' 2>/dev/null && echo $(each))))

TEST_HOME ?= $(CURDIR)/.cache/shoal
MODELS := sentence-transformers/all-MiniLM-L6-v2 cross-encoder/ms-marco-MiniLM-L-12-v2 \
  BAAI/bge-small-en-v1.5 rasyosef/splade-tiny shoal/virtual-encoder shoal/virtual-reranker

# The foreign clients whose wire we speak. Their metadata asks for a newer Python, or an older hub client, than
# their code needs, so they are installed alone, and what they need is named here. langchain-huggingface is the
# last that takes the URL of a server.
FOREIGN := sie-sdk==0.10.1 sie-langchain==0.10.1 langchain-huggingface==1.2.1
FOREIGN_NEEDS := 'aiohttp>=3.9,<4' 'msgpack>=1.2.1,<2' 'msgpack-numpy>=0.4,<1' 'numpy>=2,<2.5' \
  'pillow>=12.2' 'pyyaml>=6,<7' 'websockets>=14,<15' 'langchain-core>=0.3,<2' 'huggingface-hub>=1,<3'

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.base ## make .venv with Shoal in it, without PyTorch

run: setup ## two real models, a server on 127.0.0.1:8080 (SHOAL_PORT changes it), one example; Ctrl-C stops it
	@$(BIN)/python scripts/quickstart.py

models: export SHOAL_HOME := $(TEST_HOME)
models: setup ## fetch the models that tests and benches use into .cache/shoal
	@for name in $(MODELS); do $(BIN)/shoal add $$name || exit 1; done

test: export SHOAL_HOME := $(TEST_HOME)
test: lint models ## everything a change has to pass: lint, and all tests but the slow ones
	$(BIN)/python -m pytest -m 'not slow'

test-slow: export SHOAL_HOME := $(TEST_HOME)
test-slow: $(VENV)/.test models ## the tests that take minutes each
	$(BIN)/python -m pytest -m slow

lint: $(VENV)/.test ## ruff, mypy, who imports whom, and how long the code is
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python scripts/lines.py

bench: export SHOAL_HOME := $(TEST_HOME)
bench: $(VENV)/.test models ## measure against sentence-transformers in process
	$(BIN)/python bench/first.py

clean: ## remove the environment, the tests' models and every cache here
	rm -rf $(VENV) .cache build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Shoal needs Python 3.11 or newer, and none was found; name one with PYTHON=…"; exit 1; }
	@"$(PYTHON)" -c '$(IS_NEW_ENOUGH)' || { echo "$(PYTHON) is older than Python 3.11"; exit 1; }
	"$(PYTHON)" -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/.base: pyproject.toml | $(BIN)/python
	$(PIP) install -e .
	@touch $@

# torch by pip and pinned: pip's configuration may know a build for CPUs alone, which is a tenth of the size.
$(VENV)/.test: pyproject.toml Makefile | $(VENV)/.base
	$(PIP) install -e '.[dev,reference]' $(FOREIGN_NEEDS)
	$(PIP) install --no-deps --ignore-requires-python $(FOREIGN)
	@touch $@
