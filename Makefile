# make repro   the environment, then every number, figure and page of the default experiment, JOBS stages at once
# make test    the environment, then every test, the notebooks' cells included
# make lab     JupyterLab in this environment; LAB=... for options, such as LAB=--allow-root in a container
# make lint    style, types and the import rule
# make lock    write requirements.lock anew from what is installed

# The first of these that is a Python of at least 3.11 and can make an environment; PYTHON=... chooses another.
candidates := python3.11 python3 python3.12 python3.13 python3.14 python
suitable = import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(firstword $(foreach name,$(candidates),$(shell $(name) -c '$(suitable)' 2>/dev/null && echo $(name))))

bin := .venv/bin
export PATH := $(CURDIR)/$(bin):$(PATH)

# Threads that wait for each other sleep soon, instead of burning the core that the other one needs.
export GOMP_SPINCOUNT ?= 2000

.PHONY: repro test lab lint lock

repro: .venv/installed
	$(bin)/python -m ltnb.params
	$(bin)/python -m ltnb.pipeline $(if $(JOBS),--jobs $(JOBS))
	@echo 'The report: report/index.html'

test: .venv/installed
	OMP_NUM_THREADS=1 $(bin)/pytest -n auto --maxprocesses 4 --dist loadfile --nbval --nbval-current-env tests notebooks

lab: .venv/installed
	$(bin)/jupyter lab --KernelManager.transport_encryption=required $(LAB)

lint: .venv/installed
	$(bin)/ruff check
	$(bin)/ruff format --check
	$(bin)/mypy
	$(bin)/lint-imports

lock: .venv/installed
	$(bin)/python tests/test_packaging.py > requirements.lock.new
	mv requirements.lock.new requirements.lock

# The lock leaves out the CUDA libraries that torch brings on Linux, at versions that torch itself names.
.venv/installed: pyproject.toml requirements.lock
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11 or newer with venv found; give one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c '$(suitable)' || { echo "make: $(PYTHON) is not a Python 3.11 or newer with venv" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(bin)/python -m pip install --disable-pip-version-check --requirement requirements.lock --editable '.[dev]'
	touch $@
