# What a developer does here; 'make help' lists it. Environments are made on demand in .venv/, one per
# Airflow version, from the pins in constraints/; packages are shared through uv's cache.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
AIRFLOW ?= 3.3.2
AIRFLOWS := 3.3.2 3.4.0b2
COMPAT_AIRFLOWS := 3.2.2 3.0.6
# The newest Python beside $(PYTHON) on this machine, if any: the unit tests run on it too.
NEWER_PYTHON ?= $(shell dev/newer-python $(PYTHON))

# Every Kubernetes test runs on the first Airflow; on the others those whose outcome depends on it, and on
# kind those whose outcome depends on a kubelet with containers.
LOCAL_TESTS ?= kubernetes_tests
PER_AIRFLOW_TESTS := $(addprefix kubernetes_tests/test_,callbacks.py hybrid.py connection_tests.py)
KIND_TESTS ?= $(addprefix kubernetes_tests/test_,callbacks.py pod_acceptance.py container_failures.py pod_loss.py \
  least_privilege.py)

KIND_SLOW_TESTS ?= $(addprefix kubernetes_tests/test_,restart.py node_loss.py pod_finalizer.py)

CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/airflow-kubernetes-callbacks
UV_VERSION := $(shell sed -n 's/^uv==//p' constraints/tools.txt)
UV := $(CACHE)/uv-$(UV_VERSION)/bin/uv
export UV_PYTHON_DOWNLOADS := never
export UV_NO_PROGRESS := 1
# Containers set it; here it makes every one of hundreds of processes compile this checkout again.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv/$(AIRFLOW)
PYTEST := $(VENV)/bin/python -m pytest
TOOLS := .venv/tools/bin
# In CI a test with real processes gets two more tries; the run says which one needed it.
RERUNS := $(if $(CI),--reruns 2 --reruns-delay 2)
ARGS ?=
# Processes that share the unit tests.
WORKERS ?= 2

##@ Try it
.PHONY: demo
demo: $(VENV)/.ready ## Missed deadlines become pods, on a cluster made for it (KEEP=1: leave the UI up)
	$(VENV)/bin/python -m kubernetes_tests.demo $(if $(KEEP),--keep) $(ARGS)

##@ Test
.PHONY: test quick unit unit-newer-python compat test-local test-extended test-slow test-kind test-kind-slow monitoring-tools
test: monitoring-tools ## Everything but kind: unit and contract tests, compatibility, the local cluster
	$(MAKE) unit AIRFLOW=$(firstword $(AIRFLOWS))
	for airflow in $(wordlist 2,9,$(AIRFLOWS)); do $(MAKE) unit AIRFLOW=$$airflow ARGS='-m "not once" $(ARGS)'; done
	for airflow in $(COMPAT_AIRFLOWS); do $(MAKE) compat AIRFLOW=$$airflow; done
	$(MAKE) test-local AIRFLOW=$(firstword $(AIRFLOWS))
	for airflow in $(wordlist 2,9,$(AIRFLOWS)); do \
	  $(MAKE) test-local AIRFLOW=$$airflow LOCAL_TESTS="$(PER_AIRFLOW_TESTS)" ARGS='-k "not fifty" $(ARGS)'; done

quick: ARGS += -m "not slow"
quick: unit ## The unit tests without the slow ones, on one Airflow

unit: $(VENV)/.ready ## Unit and contract tests on one Airflow (AIRFLOW=3.4.0b2, ARGS="-k settings")
	@echo "== unit tests, Airflow $(AIRFLOW)"
	$(PYTEST) tests -n $(WORKERS) $(RERUNS) $(ARGS)

unit-newer-python: ## Unit tests on the newest Python that is installed here
ifeq ($(NEWER_PYTHON),)
	@echo "== unit tests on a newer Python: none is installed here, left out"
else
	@$(MAKE) .venv/newer/.ready
	@echo "== unit tests, Airflow $(lastword $(AIRFLOWS)), $$(.venv/newer/bin/python --version)"
	.venv/newer/bin/python -m pytest tests -m "not slow" -n $(WORKERS) $(RERUNS) $(ARGS)
endif

compat: $(VENV)/.ready ## Airflow versions without executor callbacks (AIRFLOW=3.0.6)
	@echo "== compatibility, Airflow $(AIRFLOW)"
	$(PYTEST) tests/compat $(ARGS)

test-local: $(VENV)/.ready ## Kubernetes tests on the local cluster, one Airflow (AIRFLOW=3.4.0b2)
	@echo "== Kubernetes tests on the local cluster, Airflow $(AIRFLOW)"
	$(PYTEST) $(LOCAL_TESTS) --cluster local -m "not slow and not extended" $(RERUNS) $(ARGS)

test-extended: $(VENV)/.ready ## More Kubernetes tests on the local cluster, beside those of 'make test' (15 minutes)
	@echo "== more Kubernetes tests on the local cluster, Airflow $(AIRFLOW)"
	$(PYTEST) $(LOCAL_TESTS) --cluster local -m "extended and not slow" $(RERUNS) $(ARGS)

test-slow: $(VENV)/.ready ## The slow Kubernetes tests too: every cell of the crash matrix, the soak (an hour)
	@echo "== slow Kubernetes tests on the local cluster, Airflow $(AIRFLOW)"
	$(PYTEST) kubernetes_tests --cluster local -m slow $(ARGS)

test-kind: $(VENV)/.ready ## Kubernetes tests on kind (KIND_NODE_IMAGE, BASE_IMAGE: images to start from)
	@echo "== Kubernetes tests on kind, Airflow $(AIRFLOW)"
	$(PYTEST) $(KIND_TESTS) --cluster kind -m "not slow" $(RERUNS) $(ARGS)

test-kind-slow: $(VENV)/.ready ## More of them on kind: restarts, lost and drained nodes, finalizers
	@echo "== slow Kubernetes tests on kind, Airflow $(AIRFLOW)"
	$(PYTEST) $(KIND_SLOW_TESTS) --cluster kind $(RERUNS) $(ARGS)

monitoring-tools: ## promtool and a statsd exporter, for the tests of alert rules and dashboard
	@dev/monitoring-tools $(CACHE)/monitoring $(PYTHON)

##@ Measure
.PHONY: bench bench-ci
bench: $(VENV)/.ready .venv/plot/.ready ## Ratios to the stock executor and the bare API server (ARGS="--size full")
	$(VENV)/bin/python -m kubernetes_tests.bench --output build/bench $(ARGS)
	.venv/plot/bin/python -m kubernetes_tests.bench.plot build/bench

bench-ci: $(VENV)/.ready ## The same, small; fails on a ratio that is far outside its target
	@echo "== benchmark, Airflow $(AIRFLOW)"
	$(VENV)/bin/python -m kubernetes_tests.bench --size ci --judge --output build/bench-ci $(ARGS)

##@ Check
.PHONY: lint format types imports news docs options wheel check
check: lint types imports ## Lint, types and import contract

lint: .venv/tools/.ready ## Style and likely mistakes (ruff)
	$(TOOLS)/ruff check $(ARGS) .
	$(TOOLS)/ruff format --check .

format: .venv/tools/.ready ## Let ruff mend what it can
	$(TOOLS)/ruff check --fix --exit-zero .
	$(TOOLS)/ruff format .

types: .venv/tools/.ready .venv/$(lastword $(AIRFLOWS))/.ready ## Types (mypy, strict)
	$(TOOLS)/mypy --python-executable .venv/$(lastword $(AIRFLOWS))/bin/python src kubernetes_tests/cluster

imports: .venv/tools/.ready ## Which module may import which (import-linter)
	PYTHONPATH=src $(TOOLS)/lint-imports

news: .venv/tools/.ready ## A change that users see has a newsfragment
	$(TOOLS)/towncrier check --compare-with $(or $(BASE),origin/main)

docs: .venv/docs/.ready ## The documentation site, in docs/_build/html; a warning is an error
	.venv/docs/bin/sphinx-build -q -W --keep-going -b html docs docs/_build/html $(ARGS)

options: ## docs/reference/options.md, anew from the list of options
	page=$$($(PYTHON) -B dev/options_page.py) && echo "$$page" >docs/reference/options.md

wheel: $(UV) ## The package, in dist/
	rm -rf dist
	$(UV) build --quiet --build-constraints constraints/tools.txt
	ls dist

##@ Environments
.PHONY: env constraints clean print-uv
env: $(VENV)/.ready ## The environment .venv/<AIRFLOW>, with this checkout installed in it

constraints: $(UV) ## Resolve the pins in constraints/ anew
	UV=$(UV) dev/pin-constraints $(AIRFLOWS) $(COMPAT_AIRFLOWS)

print-uv: $(UV)
	@echo $(UV)

clean: ## Environments and build results of this checkout
	rm -rf .venv dist build docs/_build docs/_generated .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(UV):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed; name one: make PYTHON=/path/to/python3 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' \
	  || { echo "Python needs its module venv. On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@mkdir -p $(CACHE) && test -w $(CACHE) \
	  || { echo "$(CACHE) cannot be written; name another folder: make XDG_CACHE_HOME=/path/to/cache ..." >&2; exit 1; }
	@rm -rf $(dir $(@D))
	$(PYTHON) -m venv $(dir $(@D))
	$(dir $(@D))bin/pip --quiet --disable-pip-version-check install uv==$(UV_VERSION)

.venv/tools/.ready: constraints/tools.txt pyproject.toml | $(UV)
	@UV=$(UV) dev/make-env .venv/tools $(PYTHON) constraints/tools.txt --group tools

.venv/docs/.ready: constraints/docs.txt pyproject.toml | $(UV)
	@UV=$(UV) dev/make-env .venv/docs $(PYTHON) constraints/docs.txt --group docs

.venv/plot/.ready: constraints/plot.txt pyproject.toml | $(UV)
	@UV=$(UV) dev/make-env .venv/plot $(PYTHON) constraints/plot.txt --group plot

.venv/newer/.ready: constraints/airflow-$(lastword $(AIRFLOWS)).txt pyproject.toml | $(UV)
	@UV=$(UV) dev/make-env .venv/newer $(NEWER_PYTHON) $< apache-airflow==$(lastword $(AIRFLOWS)) --editable . --group test

.venv/%/.ready: constraints/airflow-%.txt pyproject.toml | $(UV)
	@UV=$(UV) dev/make-env .venv/$* $(PYTHON) $< apache-airflow==$* --editable . --group test

constraints/airflow-%.txt:
	@echo "No versions are pinned for Airflow $*; choose AIRFLOW from: $(AIRFLOWS) $(COMPAT_AIRFLOWS)" >&2; exit 1

.PHONY: help
help:
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
