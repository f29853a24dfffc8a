# Weir's commands. Each sets up what it needs in .venv, once; `make` alone lists them.
#
# Needs Python 3.11 or newer with pip, and make. The billing jobs bring their Java.
# Another Python: `make PYTHON=python3.12 run`.

PYTHON ?= $(shell command -v python3.11 || command -v python3 || echo python3.11)
VENV := .venv
BIN := $(VENV)/bin
PACKAGES := kernel adapters gateway auth metering spark

# A stamp says what is installed; it is older than what decides that when that has changed.
READY := $(VENV)/.ready
READY_RUN := $(READY)-run
READY_DEV := $(READY)-dev
READY_SPARK := $(READY)-spark
READY_BROWSER := $(READY)-browser
READY_NPM := tests/npm/node_modules/.ready
INSTALL := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt

# Images of containers set this, for what is installed once and never changes. Here it has every process
# compile every module again: a second of CPU each time that a test starts `weir serve`.
unexport PYTHONDONTWRITEBYTECODE

# Arguments for `weir serve`, pytest and `weir bench`, as in `make run ARGS='--set amqp.port=5673'`.
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help run cluster test test-spark test-image sim sim-full sweeps mutants chaos setup-spark setup-npm setup-browser \
    lint format bench docs \
    freeze clean
.DELETE_ON_ERROR:

help: ## List the commands.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(READY_RUN) ## Serve: `weir serve $(ARGS)`.
	@exec $(BIN)/weir serve $(ARGS)

cluster: $(READY_RUN) ## Run three stores and two gateways on this machine, until Ctrl-C.
	@PATH="$(abspath $(BIN)):$$PATH" sh deploy/cluster.sh

# Four lanes side by side, for most tests wait: for clients, disks and elections. What starts many
# processes, or waits for whole seconds, has one of its own, and the Spark tests follow it; what is
# simulated ends early, so that others follow it too. The seeds
# give way to all of them, and take what is left of two processors.
SIMULATED := tests/kernel tests/simulator tests/matrix tests/metering tests/rights \
	tests/gateway/test_limits_walked_round.py tests/gateway/test_tenant_walls.py
SEEDS := nice -n 19 $(BIN)/python -m tests.simulator.swarm --events 1300 --processes 2
SPARK := tests/spark tests/line_protocol
WAITING := tests/chaos $(wildcard tests/gateway/test_*cluster*.py) \
	$(addprefix tests/gateway/test_,features.py gateway_processes.py limits.py moving_clients.py \
	revocation.py together.py unlike_gateways.py)
# The adapters' lane ends early too: pages of the console, limits and backups follow it.
ADAPTERS := tests/adapters tests/gateway/test_backups.py \
	$(filter-out $(SIMULATED) $(WAITING),$(wildcard tests/gateway/test_console*.py tests/gateway/test_limit*.py))
# What reads the tree itself: with the rest of `make lint`, and not twice in a run of CI.
TIDY := tests/tidy
APART := $(SIMULATED) $(ADAPTERS) $(WAITING) $(SPARK) $(TIDY)

test: $(READY_DEV) ## Run all tests but those of `make lint`.
	@$(if $(ARGS),true,$(SEEDS)) >$(VENV)/seeds.log 2>&1 & seeds=$$!; \
	$(BIN)/python -m pytest $(SIMULATED) $(ARGS) >$(VENV)/simulated.log 2>&1 & simulated=$$!; \
	$(BIN)/python -m pytest $(ADAPTERS) $(ARGS) >$(VENV)/adapters.log 2>&1 & adapters=$$!; \
	{ $(BIN)/python -m pytest $(WAITING) $(ARGS); code=$$?; \
		$(MAKE) --no-print-directory test-spark || code=1; exit $$code; } \
		>$(VENV)/waiting.log 2>&1 & waiting=$$!; \
	$(BIN)/python -m pytest tests $(APART:%=--ignore=%) $(ARGS); code=$$?; \
	for lane in waiting adapters simulated seeds; do \
		eval "wait \$$$$lane" || code=1; \
		cat $(VENV)/$$lane.log; \
	done; \
	exit $$code

test-spark: $(READY_SPARK) ## Run the tests of the billing jobs, and of a protocol that they bill.
	$(BIN)/python -m pytest $(SPARK) $(ARGS)

# Needs root, the network, and Debian's buildah and debootstrap; takes minutes.
test-image: $(READY_DEV) ## Build the image of the Containerfile, and serve it.
	WEIR_TEST_IMAGE=1 $(BIN)/python -m pytest tests/image $(ARGS)

setup-spark: $(READY_SPARK) ## Install PySpark into .venv (500 MB to download).

setup-npm: $(READY_NPM) ## Install npm's clients, which a few tests use (50 MB; needs node and npm).

setup-browser: $(READY_BROWSER) ## Install what drives Debian's chromium, for the tests of the console's pages (165 MB).

# One seed tells what happened in it; without one: 400 of them; `make test` runs these with fewer events.
SEED ?=
EVENTS ?= 2000

sim: $(READY_DEV) ## Simulate a cluster under faults: `make sim SEED=7 EVENTS=2000`.
	$(BIN)/python -m tests.simulator.swarm $(if $(SEED),--seed $(SEED)) --events $(EVENTS) $(ARGS)

sim-full: $(READY_DEV) ## Simulate 2,000 seeds of 5,000 events.
	$(BIN)/python -m tests.simulator.swarm --seeds 2000 --events 5000 $(ARGS)

sweeps: $(READY_DEV) ## Lose power at every boundary of a run; `make test` tries a third of them.
	WEIR_SWEEP=all $(BIN)/python -m pytest tests/kernel/test_crash_sweep.py tests/kernel/log/test_crash_sweep.py $(ARGS)

mutants: $(READY_DEV) ## Put bugs in on purpose: each must be found by an invariant.
	$(BIN)/python -m tests.simulator.mutants $(ARGS)

ROUNDS ?= 20

chaos: $(READY_DEV) ## Kill, pause and cut off real processes under load: `make chaos ROUNDS=20 SEED=7`.
	$(BIN)/python -m tests.chaos --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED)) $(ARGS)

lint: $(READY_DEV) ## Check style, types, import rules and tidiness.
	@# Types take as long as all else, and one processor: two lanes.
	@$(BIN)/mypy >$(VENV)/mypy.log 2>&1 & mypy=$$!; \
	$(BIN)/ruff check --output-format concise . && \
		$(BIN)/ruff format --check . && \
		$(BIN)/lint-imports && \
		$(BIN)/python -m pytest $(TIDY) -q; code=$$?; \
	wait $$mypy || code=1; \
	cat $(VENV)/mypy.log; \
	exit $$code

format: $(READY_DEV) ## Put imports and layout in order.
	$(BIN)/ruff check --select I --fix .
	$(BIN)/ruff format .

bench: $(READY_DEV) ## Measure: `weir bench $(ARGS)`.
	$(BIN)/weir bench $(ARGS)

docs: $(READY_DEV) ## Write the generated pages.
	$(BIN)/python -m gateway.docs_config
	$(BIN)/python -m gateway.docs_commands
	$(BIN)/python -m gateway.docs_api
	$(BIN)/python -m tests.rights.page

freeze: $(READY_SPARK) $(READY_BROWSER) ## Write constraints.txt from what is installed, after changing requirements.
	@{ sed '/^[^#]/,$$d' constraints.txt; \
	   $(BIN)/python -m pip freeze --exclude-editable --exclude weir-mq --exclude pip | LC_ALL=C sort -f; \
	} > $(VENV)/constraints.new
	@if grep -E '@|://' $(VENV)/constraints.new >&2; then \
		echo "Something was installed from a file or an address; constraints.txt stays as it was." >&2; exit 1; \
	fi
	@mv $(VENV)/constraints.new constraints.txt

clean: ## Remove the environment and the tools' caches; never a data directory.
	rm -rf $(VENV) tests/npm/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "Weir needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1)." >&2; \
		echo "Name another one: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	@# Debian ships Python without ensurepip; its pip can still fill an environment from outside.
	@$(PYTHON) -m venv $(VENV) 2>/dev/null || { \
		$(PYTHON) -m venv --clear --without-pip $(VENV) && \
		$(PYTHON) -m pip --python $(BIN)/python install --quiet pip; }

$(READY_RUN): pyproject.toml constraints.txt | $(BIN)/python
	@echo "Setting up $(VENV) ..."
	@$(INSTALL) -e .
	@touch $@

$(READY_DEV): pyproject.toml constraints.txt | $(BIN)/python
	@echo "Setting up $(VENV) with the tools for development ..."
	@$(INSTALL) -e '.[dev]'
	@touch $@ $(READY_RUN)

$(READY_NPM): tests/npm/package.json
	@echo "Setting up tests/npm/node_modules ..."
	@npm install --prefix tests/npm --no-package-lock --ignore-scripts --no-audit --no-fund --prefer-offline --loglevel=error
	@touch $@

# By name, in constraints.txt's versions: what runs beside it must not find Weir taken out and put in again.
$(READY_BROWSER): $(READY_DEV)
	@$(INSTALL) playwright axe-playwright-python
	@touch $@

$(READY_SPARK): $(READY_DEV)
	@echo "Setting up $(VENV) with PySpark (500 MB to download) ..."
	@$(INSTALL) -e '.[dev,spark]'
	@touch $@
