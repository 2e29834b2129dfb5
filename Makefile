# `make run` and `make test` need nothing but this file, Python 3.11 and, where system packages are missing, root or sudo.

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3

PACKAGES := $(shell cat requirements/debian.txt)

.PHONY: run test setup lint bench lock clean

run: setup
	@$(BIN)/poolhouse up --apply examples/pool.yaml

test: setup
	@$(BIN)/python -m pytest

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

bench: setup
	@set -e; for each in bench/*.py; do case $$each in */__init__.py) ;; *) echo "== $$each"; $(BIN)/python -m bench.$$(basename $$each .py);; esac; done

# Each step leaves a stamp that is older than what it was made from when it has to be done again.
setup: $(VENV)/.packages $(VENV)/.installed $(VENV)/.control-plane

$(VENV)/.packages: requirements/debian.txt
	@sh requirements/system.sh $(PACKAGES)
	@mkdir -p $(VENV) && touch $@

$(VENV)/.installed: requirements/all.lock pyproject.toml | $(VENV)/.packages
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing Python packages"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/all.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.control-plane: local/controlplane/main.go local/controlplane/go.mod local/controlplane/go.sum | $(VENV)/.installed
	@$(BIN)/python -m local.binaries
	@touch $@

lock:
	@for extra in webhook defaulter controllers; do $(BIN)/pip-compile --quiet --generate-hashes --strip-extras --no-header --no-emit-index-url --no-emit-find-links --extra $$extra -o requirements/$$extra.lock pyproject.toml; done
	@$(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-header --no-emit-index-url --no-emit-find-links --extra local --extra test --extra lint --extra build -o requirements/all.lock pyproject.toml

clean:
	rm -rf $(VENV) .poolhouse
