# Everything a contributor runs. `make help` lists it.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
WORKERS ?= 2
SCRIPTS = $(filter-out benchmarks/peers/%,$(wildcard benchmarks/*.py benchmarks/*/*.py benchmarks/*/*/*.py docs/*.py))

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-slow check soak mutants gpu-artifacts grammar docs wheels site clean

help: ## show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | \
	  while IFS="$$(printf '\t')" read -r name text; do printf '  make %-13s %s\n' "$$name" "$$text"; done

# Installed once; again when the dependencies change.
$(VENV)/.installed: pyproject.toml wheels/runtime.txt wheels/compiler.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[dev,cuda]'
	touch $@

venv: $(VENV)/.installed ## make the virtual environment and install dslc into it, editable

demo: $(VENV)/.installed ## build LeNet, train it on the digits, predict from Python
	cd examples/digits && \
	  $(abspath $(BIN))/dslc train && \
	  $(abspath $(BIN))/dslc eval && \
	  $(abspath $(BIN))/python predict.py

test: $(VENV)/.installed ## run the tests, but not those that take long
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow"

test-slow: $(VENV)/.installed ## run the tests that take long; continuous integration runs both
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m slow

check: $(VENV)/.installed ## lint, formatting, types, import floors
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p dslc
	$(BIN)/mypy --config-file .mypy-scripts.ini $(SCRIPTS)
	$(BIN)/lint-imports

soak: $(VENV)/.installed ## the tests with every fuzz and fault count at its full size
	DSLC_SOAK=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -o timeout=3600

mutants: $(VENV)/.installed ## plant each fault of tests/mutation and see a test fail (about an hour; JSON=1 prints JSON)
	$(BIN)/python tests/mutation/run.py $(if $(JSON),--json)

gpu-artifacts: $(VENV)/.installed ## compile what tests/gpu and the GPU benchmarks run, into .gpu (no GPU is needed)
	$(BIN)/python tests/support/make_kernels.py
	$(BIN)/python benchmarks/gpu_bandwidth.py make
	$(BIN)/python tests/support/make_vendor.py
	$(BIN)/python benchmarks/gpu_contractions.py make
	for model in digits/lenet mlp/mlp; do $(BIN)/dslc build examples/$$model.nn --target cpu,sm_90 -o .gpu/build || exit 1; done

grammar: $(VENV)/.installed ## make the parser's tables again after a change of dsl/grammar.lark
	$(BIN)/python -m dslc.dsl.tables

docs: $(VENV)/.installed ## make the pages of docs/ that come from tables in the code
	$(BIN)/python docs/generate.py

wheels: $(VENV)/.installed ## build the wheels of dslc and dslc-runtime into dist/; a commit gives the same bytes again
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m pip wheel -q --disable-pip-version-check --no-deps --config-settings release=true -w dist ./wheels .

site: $(VENV)/.installed ## build the documentation as a site in .site/html, and check its links
	$(BIN)/python docs/site.py .site

clean: ## remove what builds and runs made (not the virtual environment)
	rm -rf examples/*/build examples/*/runs .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .gpu .site dist
