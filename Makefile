# User targets; `make` lists them. On a fresh machine `make nightly` and `make test` are enough.
.DEFAULT_GOAL := help
SUITE ?= smoke
SYSTEM ?= local
# The stack that the first night builds with Spack, after its session; STACK=none builds nothing.
STACK ?= quick
# Not PYTHON: that variable selects the Python that creates .venv (ci/setup).
OUR_PYTHON := .venv/bin/python
# Three at a time on two cores: tests of sessions and batch systems mostly wait. The tests of one file stay together.
PARALLEL := -n 3 --dist loadfile --no-loadscope-reorder

.PHONY: help
help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

.PHONY: nightly
nightly: ## install what is missing, run the smoke suite, report, build the dashboard; the first time also the stack `quick`
	ci/nightly --system $(SYSTEM) --suite $(SUITE) --build-stack $(STACK)

.PHONY: setup
setup: ## prepare the machine for tests and development
	ci/setup --dev

.PHONY: test-quick
test-quick: setup ## one test of each kind in about three minutes, while editing: no MPI, Slurm, PostgreSQL, browser
	$(OUR_PYTHON) -m pytest $(PARALLEL) --quick

.PHONY: test
test: setup ## all tests but the slow ones: Python, C, one end-to-end run
	ci/ctest
	$(OUR_PYTHON) -m pytest $(PARALLEL) -m "not slow"
	$(OUR_PYTHON) -m pytest $(PARALLEL) --history postgresql tests/output/report

.PHONY: test-all
test-all: setup ## what `make test` leaves out: campaigns, time limits of Slurm, other MPIs, the suite alone
	ci/ctest --others
	$(OUR_PYTHON) -m pytest $(PARALLEL) -m slow
	$(OUR_PYTHON) -m pytest $(PARALLEL) --history postgresql -m "not slow" tests/session/test_run.py

# Tests that read or write a history; tests of the store itself always run on both databases.
WITH_HISTORY := $(addprefix tests/,comparison darshan demo findings output reference session site)
.PHONY: test-postgresql
test-postgresql: setup ## all tests that need a history, on PostgreSQL instead of SQLite
	$(OUR_PYTHON) -m pytest $(PARALLEL) --history postgresql $(WITH_HISTORY) $(wildcard tests/test_*.py)

.PHONY: test-cluster
test-cluster: setup ## on a cluster in a box: Slurm on four nodes, GlusterFS on three servers (root; Debian packages)
	$(OUR_PYTHON) -m pytest tests/cluster

.PHONY: lint
lint: setup ## style, types and security of our code
	.venv/bin/ruff check src tests reframe_tests bench tools ci/docs_hook.py
	.venv/bin/ruff format --check src tests reframe_tests bench tools ci/docs_hook.py
	.venv/bin/clang-format --dry-run -Werror --style=file:benchmarks/benchio/.clang-format $(wildcard benchmarks/*/*/*.[ch])
	.venv/bin/mypy
	.venv/bin/bandit -q -ll -r src -c pyproject.toml

.PHONY: audit
audit: setup ## known vulnerabilities of the packages that we use; asks a service in the network
	ci/audit

.PHONY: bench
bench: setup ## figures of speed, memory and detection quality (docs/ has measured figures), and the campaign of faults
	$(OUR_PYTHON) bench/all.py
	$(OUR_PYTHON) -m tests.faults.hostile
	$(OUR_PYTHON) -m tests.faults.campaign

.PHONY: docs
docs: setup ## the documentation as a site of files, build/docs/index.html; broken links are errors
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict

.PHONY: release
release: setup ## in dist/: sdist, wheel (tried in an empty environment), container file, recipes of Spack and EasyBuild, gallery
	$(OUR_PYTHON) tools/release.py

.PHONY: stack
stack: setup ## build the reference stack with Spack (clones the pinned Spack if there is none)
	.venv/bin/iowatch stack install reference --bootstrap

.PHONY: clean
clean: ## remove build directories and .venv (not the history in var/)
	rm -rf build .venv
