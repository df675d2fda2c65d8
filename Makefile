# The README's two commands are `make demo` and `make test`; both set everything up themselves.
SHELL := /bin/bash
VENV  := .venv
BIN   := $(VENV)/bin

.PHONY: help setup demo test check lint types oracle lock clean

help:  ## show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup:  ## create .venv with pinned dependencies and the GL libraries (quick when nothing changed)
	@scripts/setup.sh $(VENV)

demo: setup  ## see what hostbot does, in one command; files land in demo/
	@$(BIN)/hostbot demo --out demo

test: setup  ## the test suite
	@$(BIN)/python -m pytest

lint: setup  ## ruff: lint and format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: setup  ## mypy, strict, on src/
	@$(BIN)/mypy

check: lint types test  ## everything a commit must pass

oracle: setup  ## compare with the real lerobot and openpi-client, in environments of their own
	@tests/oracle/setup.sh
	@tests/oracle/setup_openpi.sh
	@$(BIN)/python -m pytest -m oracle tests/oracle

lock: setup  ## write requirements/lock.txt again from what is installed
	@scripts/lock.sh $(VENV)

clean:  ## remove environments and caches
	rm -rf $(VENV) .venv-oracle .venv-openpi .mypy_cache .ruff_cache .pytest_cache demo
