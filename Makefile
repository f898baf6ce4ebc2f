# gradwire's commands. Each sets up what it needs; `make help` lists them.
#
#   GRADWIRE_EXTRAS=gpu make setup          the CUDA engines instead of the CPU ones
#   make test TEST_ARGS="-k weights -x"     arguments for pytest
#   make test TEST_WORKERS=0                one process, which shows what each test prints
#   make demo DEMO_ARGS="--steps 3"         arguments for the demo; so have bench and serve BENCH_ARGS and SERVE_ARGS

SHELL := /bin/bash
# DeepSpeed and torch look for ninja in PATH.
export PATH := $(CURDIR)/.venv/bin:$(PATH)

PYTHON_IN_VENV := .venv/bin/python
# Each has a server of its own, about 3 GiB.
TEST_WORKERS ?= 2
BUF := .venv-gen/bin/buf
BASELINE := protos/baseline.binpb
# mypy refuses a folder without Python files, which examples and benchmarks may be.
TYPED := client_py server tests scripts $(sort $(dir $(wildcard examples/*.py benchmarks/*.py)))

.DEFAULT_GOAL := help
.PHONY: help setup tools agilerl demo test gen baseline lint bench serve clean

help: ## This list
	@sed -nE 's/^([a-z]+):.*## (.*)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

setup: ## Install everything into .venv (minutes the first time, then nothing)
	@scripts/setup.sh

tools: ## Install what generates stubs and checks protos into .venv-gen
	@scripts/setup_gen.sh

demo: setup ## Train SmolLM2 with GRPO on this machine and watch the reward rise
	$(PYTHON_IN_VENV) examples/grpo_demo.py $(DEMO_ARGS)

agilerl: setup ## Install AgileRL, whose checkpoints the tests convert, into .venv-agilerl
	@scripts/setup_agilerl.sh

test: setup tools agilerl ## Run the tests
	$(PYTHON_IN_VENV) -m pytest --numprocesses $(TEST_WORKERS) $(TEST_ARGS)

gen: ## Rebuild the stubs in gen/ from protos/
	scripts/gen.sh

baseline: tools ## Take today's protos as the contract that may not break (at a release)
	$(BUF) build --exclude-source-info -o $(BASELINE)

lint: setup tools ## Check style, types, protos and scripts
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy $(TYPED)
	$(BUF) lint
	$(BUF) format --diff --exit-code --path protos/gradwire
	$(BUF) breaking --against $(BASELINE)
	.venv-gen/bin/shellcheck scripts/*.sh .ci/run

bench: setup ## Measure
	$(PYTHON_IN_VENV) benchmarks/run.py $(BENCH_ARGS)

serve: setup ## Serve SmolLM2 on this machine
	.venv/bin/gradwire serve --model smollm2 --insecure-no-auth $(SERVE_ARGS)

clean: ## Remove what make made
	rm -rf .venv .venv-gen .venv-agilerl .mypy_cache .ruff_cache .pytest_cache .hypothesis dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
