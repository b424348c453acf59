# Every target sets itself up from nothing: all it needs is Python, make and coreutils.

PYTHON ?= python3
DEMO_ARGS ?=
BENCH_ARGS ?=
PROOF_ARGS ?=
MUTANTS ?=

PY := .venv/bin/python
PYTEST := $(PY) -m pytest
# Tests marked xdist_group share servers that take seconds to start: one process runs them.
SIDE_BY_SIDE := -n auto --dist loadgroup
# Another Python, or a checkout that was moved or copied, gets a fresh environment.
VENV_ID := $(shell $(PYTHON) -c 'import os, sys, zlib; print("%d.%d.%d-%08x" \
	% (*sys.version_info[:3], zlib.crc32((os.getcwd() + sys.base_prefix).encode())))')

# Nothing outside the checkout may choose other settings or other code.
unexport DJANGO_SETTINGS_MODULE PYTEST_ADDOPTS PYTHONPATH
# Tests start hundreds of programs, each of which would compile the package again.
unexport PYTHONDONTWRITEBYTECODE
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1

.PHONY: help demo test test-slow test-all coverage mutants matrix storm marathon lint messages docs dist tox bench proof clean
.NOTPARALLEL:
.DELETE_ON_ERROR:

help:
	@echo "make demo       a tour in the terminal, then the shop on http://127.0.0.1:8000"
	@echo "                (DEMO_ARGS=--no-serve ends after the tour)"
	@echo "make test       the tests, without the long ones"
	@echo "make test-slow  the long tests, and the others on the second kind of server and on the fake"
	@echo "make test-all   both, and the longest searches"
	@echo "make coverage   'make test', measured"
	@echo "make mutants    each rule of the lock taken out by itself, and the test that fails then"
	@echo "                (MUTANTS='release token': those with these words in their names)"
	@echo "make tox        the tests on every supported Python and Django found here"
	@echo "make lint       style, types and missing migrations"
	@echo "make docs       the documentation, in build/docs/index.html"
	@echo "make dist       the packages, in build/dist, checked"
	@echo "make bench      this lock beside those of other libraries (BENCH_ARGS=--quick: less exact)"
	@echo "make proof      try each promise of the docs, in half an hour, and write docs/proof.md"
	@echo "                (PROOF_ARGS=--quick: a little of it, in build/proof.md)"
	@echo "make messages   compile the translations; it needs GNU gettext"
	@echo "make clean      remove what the other targets made"
	@echo "PYTHON=...      the Python to use, 3.10 or newer (default: python3)"

demo: .venv/ready-demo
	$(PY) -m example_project.demo $(DEMO_ARGS)

test: .venv/ready-test
	$(PYTEST) $(SIDE_BY_SIDE)

test-slow: matrix storm

test-all: test test-slow marathon

coverage: .venv/ready-test
	$(PY) -m coverage erase
	$(PY) -m coverage run -m pytest $(SIDE_BY_SIDE)
	$(PY) -m coverage combine --quiet
	$(PY) -m coverage report

mutants: .venv/ready-test
	$(PY) -m tests.mutants $(MUTANTS)

# The pages of the docs are among what it looks at.
matrix: .venv/ready-test .venv/ready-docs
	$(PYTEST) $(SIDE_BY_SIDE) -m matrix

# Those that measure short times run one after the other. Where a thread stands is not shown after
# a while: they last longer, and to look at one that runs may end the process.
LONG := -o faulthandler_timeout=0

storm: .venv/ready-test
	$(PYTEST) $(LONG) -n 3 --dist loadgroup -m "storm and not alone"
	$(PYTEST) $(LONG) -m "storm and alone"

marathon: .venv/ready-test
	$(PYTEST) $(LONG) -m marathon

lint: .venv/ready-lint
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m mypy
	$(PY) -W error manage.py makemigrations --check --dry-run

# The date is that of the run: without it a run that finds nothing new changes nothing.
messages:
	@for each in django_setnx_lock/locale/*/LC_MESSAGES/django.po; do \
		msgfmt --check-format -o "$${each%.po}.mo" "$$each" || exit; \
	done

docs: .venv/ready-docs
	PYTHONPATH=. $(PY) -m sphinx -W --keep-going -q -b html docs build/docs
	@echo "build/docs/index.html"

dist: .venv/ready-dist
	rm -rf build/dist
	$(PY) -m build --outdir build/dist
	$(PY) -m twine check --strict build/dist/*
	$(PY) -m check_wheel_contents build/dist/*.whl
	$(PY) -m check_manifest

tox: .venv/ready-tox
	$(PY) -m tox run $(TOX_ARGS)

bench: .venv/ready-bench
	$(PY) -m bench $(BENCH_ARGS)

proof: .venv/ready-test .venv/ready-bench
	$(PY) -m bench.proof $(PROOF_ARGS)

.venv/made-by-$(VENV_ID):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or newer is \
	needed, this is %d.%d: name one with make PYTHON=..." % sys.version_info[:2])'
	@$(PYTHON) -c 'import ensurepip, venv' || \
	{ echo "This Python cannot make environments (on Debian: apt install python3-venv)." >&2; exit 1; }
	@echo "Setting up .venv, once"
	@$(PYTHON) -m venv --clear .venv
	@touch $@

.venv/ready-%: .venv/made-by-$(VENV_ID) setup.cfg pyproject.toml
	@# The first pip that knows --group; most Pythons bring an older one.
	$(PY) -m pip install --quiet 'pip>=25.1'
	$(PY) -m pip install --quiet --editable '.[testing]' --group $*
	@touch $@

clean:
	rm -rf .venv .tox .coverage .coverage.* build dist *.egg-info
	rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache bench/results
