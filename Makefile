# `make run` and `make test` need nothing but this file, Python 3.11 and, where system packages are missing, root or sudo.

SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3

# A step is done when there is a stamp that names what it was made from, whatever the files' times say.
stamp = $(VENV)/.$(1)-$(shell cat $(2) | sha256sum | cut -c1-16)
PACKAGES := $(call stamp,packages,requirements/debian.txt)
INSTALLED := $(call stamp,installed,requirements/all.lock pyproject.toml)
CONTROL_PLANE := $(call stamp,control-plane,local/controlplane/main.go local/controlplane/go.mod local/controlplane/go.sum)
HELM := $(call stamp,helm,local/helm/go.mod)
GUEST := $(VENV)/.guest
PROMETHEUS := $(VENV)/.prometheus

PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
COMPILE := $(BIN)/pip-compile --quiet --generate-hashes --strip-extras --no-header --no-emit-index-url --no-emit-find-links

.PHONY: run test lint bench generate docs manifests plugin setup lock clean

run: setup
	@exec $(BIN)/poolhouse up --apply examples/pool.yaml

# Most tests wait for servers rather than compute: more workers than cores, each with a control plane of its own. A file
# stays with one worker, so that its tests share what they start; in the order of the tree, which has the slow ones first.
WORKERS := 3

test: setup $(PROMETHEUS) $(HELM)
	@exec $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/hadolint Dockerfile Dockerfile.defaulter

# Rewrites CRDs, chart files, reference pages and the man page from the code. Tests fail if they are out of date.
generate: setup
	@$(BIN)/python -m manifests.refresh
	@$(BIN)/python -m monitoring.refresh
	@$(BIN)/python -m cli.manual

docs: setup
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet && echo "the pages are in site/"

# For clusters without Helm.
manifests: setup $(HELM)
	@$(BIN)/python -m local.helm.plain dist && echo "dist/ has install.yaml, and kustomization.yaml beside it"

# What krew installs, for this machine's system.
plugin: setup
	@sh requirements/plugin.sh $(BIN)/python dist

bench: setup
	@set -e; for each in $$(ls bench/*.py | grep -v __init__); do \
	  echo "== $$each"; $(BIN)/python -m bench.$$(basename $$each .py); done

setup: $(PACKAGES) $(INSTALLED) $(CONTROL_PLANE) $(GUEST)

$(PACKAGES):
	@sh requirements/system.sh $$(cat requirements/debian.txt)
	@mkdir -p $(VENV) && rm -f $(VENV)/.packages-* && touch $@

$(INSTALLED): | $(PACKAGES)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed: make PYTHON=python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing Python packages into $(VENV)"
	@$(PIP) install --require-hashes -r requirements/all.lock
	@$(PIP) --quiet install --no-deps --no-build-isolation -e .
	@rm -f $(VENV)/.installed-* && touch $@

$(CONTROL_PLANE): | $(INSTALLED)
	@$(BIN)/python -m local.binaries
	@rm -f $(VENV)/.control-plane-* && touch $@

# The tiny Linux of the guests. Where it can't be had, it has said so, and simulated guests still run.
$(GUEST): | $(INSTALLED)
	@if $(BIN)/python -m local.engine.qemu.guest_packages; then touch $@; fi

# For the tests of the chart only.
$(HELM): | $(CONTROL_PLANE)
	@$(BIN)/python -m local.helm
	@rm -f $(VENV)/.helm-* && touch $@

# For the tests of alerts and dashboard only.
$(PROMETHEUS): | $(INSTALLED)
	@sh requirements/prometheus.sh "$${XDG_CACHE_HOME:-$$HOME/.cache}/poolhouse/prometheus" && touch $@

# One file for people and CI, one for each image, which has only what its service imports, and what builds are done with.
lock:
	@for extra in webhook defaulter controllers; do \
	  $(COMPILE) --extra $$extra -o requirements/$$extra.lock pyproject.toml; done
	@$(COMPILE) --allow-unsafe --extra webhook --extra defaulter --extra controllers --extra ec2 \
	  --extra test --extra lint --extra docs --extra monitoring --extra build -o requirements/all.lock pyproject.toml
	@$(COMPILE) --extra webhook --extra controllers --extra ec2 -c requirements/all.lock -o requirements/ec2.lock \
	  pyproject.toml
	@$(COMPILE) --allow-unsafe --all-build-deps --only-build-deps -c requirements/all.lock -o requirements/build.lock pyproject.toml
	@$(COMPILE) --extra cli -c requirements/all.lock -o requirements/cli.lock pyproject.toml

clean:
	rm -rf $(VENV) .poolhouse
