# Two commands: `make demo` and `make test`. Each makes .venv and installs what it needs.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin
LOOPS := $(shell find queuemodel -name '*.pyx' -o -name '*.pxi')

.PHONY: demo test test-all lint docs validate benchmark clean

$(VENV)/.installed: setup.cfg setup.py pyproject.toml $(LOOPS)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "queuemodel needs Python 3.11 or later; make PYTHON=python3.11 $@")'
	$(PYTHON) -m venv $(VENV)
	$(RUN)/python -m pip install --quiet --upgrade pip
	$(RUN)/python -m pip install --quiet --no-compile torch==2.13.0  # a newer one may bring several GB of CUDA along
	$(RUN)/python -m pip install --quiet --no-compile --editable '.[all,tensorflow,torch,notebook,docs,test]'
	$(RUN)/python -m compileall -qq -j 0 $(VENV)/lib || true  # what pip would do on one core
	touch $@

demo: $(VENV)/.installed
	$(RUN)/queuemodel demo -o demo

# Tests are on all cores already: more threads of linear algebra would only wait for each other.
test test-all: export OPENBLAS_NUM_THREADS := 1
test: $(VENV)/.installed
	$(RUN)/python -m pytest --numprocesses logical --maxprocesses 4 --dist worksteal $(PYTEST)

# Adds live clusters, network namespaces (as root), Dask and Ray, reports in Chromium, and what is slow.
test-all: lint
	$(MAKE) test PYTEST='--all $(PYTEST)'

lint: $(VENV)/.installed
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy

docs: $(VENV)/.installed
	$(RUN)/sphinx-build -W --keep-going -b html docs docs/_build/html

validate: $(VENV)/.installed
	$(RUN)/python -m validation

benchmark: $(VENV)/.installed
	$(RUN)/python -m benchmarks

clean:
	rm -rf $(VENV) demo build docs/_build *.egg-info
