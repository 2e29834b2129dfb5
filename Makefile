# `make run` and `make test` need Python 3.11 and, if system packages are missing, root or sudo.

SHELL := /bin/sh
# Without cached bytecode, each of the hundreds of processes of a test run compiles everything that it imports.
unexport PYTHONDONTWRITEBYTECODE
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3

# A setup step is done if its stamp file exists. The stamp's name has a hash of the step's sources, because the times of
# files are unreliable.
stamp = $(VENV)/.$(1)-$(shell cat $(2) | sha256sum | cut -c1-16)
PACKAGES := $(call stamp,packages,requirements/debian.txt)
INSTALLED := $(call stamp,installed,requirements/all.lock pyproject.toml)
# A virtual environment that was moved, or has lost its Python, is installed again.
$(shell sh requirements/venv.sh check $(VENV) || rm -f $(VENV)/.installed-*)
CONTROL_PLANE := $(call stamp,control-plane,poolhouse/stack/controlplane/main.go poolhouse/stack/controlplane/go.mod poolhouse/stack/controlplane/go.sum)
HELM := $(call stamp,helm,poolhouse/stack/helm/go.mod)
NODE := $(call stamp,node,requirements/node.sh tests/node/kubelet/go.sum tests/node/kubelet/*/main.go tests/node/coredns/go.sum)
GUEST := $(VENV)/.guest
AGENT_PROTOCOL := agent/poolhouse_agent/protocol.py
PROMETHEUS := $(VENV)/.prometheus
BROWSER := $(call stamp,browser,requirements/browser.txt)
# boto3 cannot be installed beside the Kubernetes client that everything else has.
EC2_VENV := $(VENV)/ec2
EC2_INSTALLED := $(call stamp,ec2,requirements/ec2-test.lock)
EC2_TESTS := tests/controllers/warmpool/ec2 tests/cluster/test_warm_ec2.py tests/cluster/test_pods_on_ec2.py
EC2_SETUP := $(MAKE) --silent --no-print-directory $(EC2_INSTALLED)
EC2_PYTEST := PYTHONPATH="$(CURDIR)" $(EC2_VENV)/bin/python -m pytest $(EC2_TESTS)

PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
# Programs in Go that requirements/tools/go.mod names and go.sum pins. Go builds them once, and keeps them in its cache.
GO_TOOL := GOWORK=off GOFLAGS=-mod=readonly CGO_ENABLED=0 go -C requirements/tools tool
# For all systems and for each Python from that of Debian 12 on.
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11.2 --generate-hashes --no-header \
  --no-emit-index-url --no-emit-find-links

.PHONY: run test test-ec2 test-e2e test-node lint bench chaos fair model fuzz mutants generate docs manifests screenshots plugin wheel client agent setup lock vendored clean

run: setup
	@exec $(BIN)/poolhouse up --apply examples/pool.yaml

# Two workers for each of two cores, because most tests wait for servers: with three, the cores were idle a quarter of the
# time. Each worker has a control plane of its own.
# tests/scheduling.py says which worker gets which tests, and in which order.
WORKERS := 4

# The EC2 tests run beside the other tests, because they wait most of their time. Their output comes last. The shell makes
# them ignore Ctrl-C.
test: setup $(PROMETHEUS) $(BROWSER) $(HELM)
	@failed=0; ec2=$$(mktemp); trap 'rm -f '$$ec2'; kill 0' INT; { $(EC2_SETUP) && $(EC2_PYTEST); } > $$ec2 2>&1 & \
	  $(BIN)/python -m pytest -n $(WORKERS) || failed=$$?; \
	  wait $$! || failed=$$?; cat $$ec2; rm $$ec2; exit $$failed

# Only the tests of EC2.
test-ec2: setup $(EC2_INSTALLED)
	@$(EC2_PYTEST) -n 2

# End-to-end tests on any cluster that has Poolhouse: `make test-e2e CONTEXT=name IMAGE=registry.example/guest:1`. Without
# CONTEXT they start an embedded stack. The file TABLE gets the results, and a file .json beside it.
CONTEXT :=
IMAGE :=
TABLE := .e2e/results.md
OPTIONS :=

test-e2e: setup
	@exec $(BIN)/python -m pytest tests/e2e --table $(TABLE) $(if $(CONTEXT),--context $(CONTEXT)) \
	  $(if $(IMAGE),--image $(IMAGE)) $(OPTIONS)

# The chart with its images on real nodes. NODES=short: one node, from installation to uninstallation.
NODES := all

test-node: setup $(HELM) $(NODE)
	@POOLHOUSE_TEST_NODE=$(NODES) exec $(BIN)/python -m pytest tests/node --durations=5

# Seeded histories with crashes and faults, in virtual time. `make chaos KIND=pool-steps SEED=7` repeats one of them.
SEEDS := 100
SEED :=
KIND :=

chaos: SECONDS := 3600
chaos: setup
	@$(BIN)/python -m tests.histories --seconds $(SECONDS) $(if $(KIND),--kind $(KIND)) \
	  $(if $(SEED),--first $(SEED) --seeds 1,--seeds $(SEEDS))
	@$(if $(KIND)$(SEED),,$(BIN)/python -m tests.model)

# What a tenant notices of the attacks of another. `make fair ATTACK=selectors` runs one of them.
ATTACK :=
fair: setup
	@exec $(BIN)/python -m tests.fair $(if $(ATTACK),--attack $(ATTACK)) $(OPTIONS)

# All states of the planners within small bounds. `make model MODEL=pool-surge` explores one of the models.
MODEL :=
model: setup
	@exec $(BIN)/python -m tests.model $(if $(MODEL),--model $(MODEL)) $(OPTIONS)

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/python -m poolhouse.generate.distributions
	@$(BIN)/mypy && $(BIN)/mypy client/poolhouse_client agent/poolhouse_agent
	@$(BIN)/hadolint Dockerfile Dockerfile.defaulter
	@$(BIN)/shellcheck --severity=warning .ci/run requirements/*.sh .github/scripts/*.sh
	@$(GO_TOOL) actionlint -shellcheck "$(CURDIR)/$(BIN)/shellcheck" -pyflakes= "$(CURDIR)"/.github/workflows/*.yml

# Rewrites CRDs, chart files, reference pages and the man page from the code. Tests fail if they are out of date.
generate: setup
	@$(BIN)/python -m poolhouse.generate.refresh
	@$(BIN)/python -m poolhouse.cli.man_page

docs: setup
	@$(BIN)/zensical build --clean --strict && echo "the pages are in site/"

# The pictures of docs/console.md, by the tests of the console.
screenshots: setup $(BROWSER)
	@mkdir -p docs/img/console
	@POOLHOUSE_SCREENSHOTS=docs/img/console $(BIN)/python -m pytest -q tests/console/test_browser.py tests/guests_in_browser/test_console.py
	@POOLHOUSE_SCREENSHOTS=docs/img exec $(BIN)/python -m pytest -q tests/guests_in_browser/test_portal.py

# The chart as plain manifests, for clusters without Helm.
manifests: setup $(HELM)
	@$(BIN)/python -m poolhouse.stack.helm.plain dist && echo "dist/ has install.yaml, and kustomization.yaml beside it"

# The distribution poolhouse-client: the Python client alone. Its models, errors and sync half are generated.
client: setup
	@$(BIN)/python -m poolhouse.generate.distributions
	@rm -rf dist/client && mkdir -p dist && cp -r client dist/client && cp LICENSE NOTICE dist/client/
	@$(PIP) wheel --no-deps --no-build-isolation --wheel-dir dist dist/client && rm -rf dist/client && ls dist/poolhouse_client-*

# The distribution poolhouse-agent: the agent that runs Pods in warm VMs.
agent: setup
	@$(BIN)/python -m poolhouse.generate.distributions
	@rm -rf dist/agent && mkdir -p dist && cp -r agent dist/agent && cp LICENSE NOTICE dist/agent/
	@$(PIP) wheel --no-deps --no-build-isolation --wheel-dir dist dist/agent && rm -rf dist/agent && ls dist/poolhouse_agent-*

# The distribution poolhouse. Its extras say what is installed with it: pip install 'dist/poolhouse-VERSION-py3-none-any.whl[cli]'
wheel: setup
	@$(PIP) wheel --no-deps --no-build-isolation --wheel-dir dist . && ls dist/poolhouse-*.whl

# The archive that krew installs, for this machine's system.
plugin: setup
	@sh requirements/plugin.sh $(BIN)/python dist

# BENCH=pool runs one benchmark, and OPTIONS="--vms 100" are options for it. BENCH=compare compares with the last release.
bench: setup
	@exec $(BIN)/python -m tests.bench $(BENCH) $(OPTIONS)

# Inputs of any form for everything that reads a stranger's input. Exits with 1 after a finding, whose input is in .fuzz.
fuzz: SECONDS := 120
fuzz: setup
	@exec $(BIN)/python -m tests.fuzz --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

# Small changes of pure code, each of which a test must notice. `make mutants OPTIONS="--only rules"` makes those of one target.
mutants: MINUTES := 20
mutants: setup
	@exec $(BIN)/python -m tests.mutants --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(OPTIONS)

setup: $(PACKAGES) $(INSTALLED) $(CONTROL_PLANE) $(GUEST) $(AGENT_PROTOCOL)

$(PACKAGES):
	@sh requirements/system.sh $$(cat requirements/debian.txt)
	@mkdir -p $(VENV) && rm -f $(VENV)/.packages-* && touch $@

$(INSTALLED): | $(PACKAGES)
	@sh requirements/venv.sh install $(PYTHON) $(VENV) $@

$(CONTROL_PLANE): | $(INSTALLED)
	@$(BIN)/python -m poolhouse.stack.binaries
	@rm -f $(VENV)/.control-plane-* && touch $@

# The built-in Linux of the VMs. Without it, `make run` needs `--engine simulated`.
$(GUEST): | $(INSTALLED)
	@$(BIN)/python -m poolhouse.stack.engine.qemu.guest_packages && touch $@ || [ $$? = 1 ]

# The modules that the agent has in common with the controllers. `poolhouse up --guest-agent` puts the agent into guests.
$(AGENT_PROTOCOL): controllers/warmpool/agent_protocol.py poolhouse/service/protobuf.py | $(INSTALLED)
	@$(BIN)/python -m poolhouse.generate.distributions && touch $@

$(EC2_INSTALLED): | $(INSTALLED)
	@echo "installing Python packages into $(EC2_VENV)"
	@$(PYTHON) -m venv --without-pip $(EC2_VENV)
	@$(PIP) --python $(EC2_VENV)/bin/python install --require-hashes -r requirements/ec2-test.lock
	@rm -f $(VENV)/.ec2-* && touch $@

# Only the tests of the chart need Helm.
$(HELM): | $(CONTROL_PLANE)
	@$(BIN)/python -m poolhouse.stack.helm
	@rm -f $(VENV)/.helm-* && touch $@

# Only the tests of nodes need kubelet, containerd and the tools that build images.
$(NODE): | $(CONTROL_PLANE)
	@sh requirements/node.sh
	@[ "$$(id -u)" != 0 ] || $(BIN)/python -m tests.node.programs
	@rm -f $(VENV)/.node-* && touch $@

# Only the tests of alerts and the dashboard need Prometheus.
$(PROMETHEUS): | $(INSTALLED)
	@sh requirements/prometheus.sh "$${XDG_CACHE_HOME:-$$HOME/.cache}/poolhouse/prometheus" && touch $@

# Only the tests of the console need a browser. It is too large for `make run`.
$(BROWSER): | $(INSTALLED)
	@sh requirements/system.sh $$(cat requirements/browser.txt)
	@rm -f $(VENV)/.browser-* && touch $@

# all.lock is for development and CI. Each image and the kubectl plugin have a file of their own, and so have the build
# and the tests of EC2.
lock:
	@for extra in webhook defaulter controllers; do \
	  $(COMPILE) --extra $$extra -o requirements/$$extra.lock pyproject.toml; done
	@$(COMPILE) --extra portal -c requirements/webhook.lock -o requirements/portal.lock pyproject.toml
	@$(COMPILE) --extra webhook --extra defaulter --extra controllers --extra engine --extra console --extra portal \
	  --extra test --extra mutants --extra lint --extra docs --extra monitoring --extra build \
	  -o requirements/all.lock pyproject.toml
	@$(COMPILE) --extra webhook --extra controllers --extra ec2 -o requirements/ec2.lock pyproject.toml
	@$(COMPILE) --extra webhook --extra controllers --extra engine --extra ec2 --extra ec2-test \
	  -c requirements/ec2.lock -o requirements/ec2-test.lock pyproject.toml
	@echo 'setuptools>=77' | $(COMPILE) -c requirements/all.lock -o requirements/build.lock -
	@$(COMPILE) --extra cli --extra console -c requirements/all.lock -o requirements/cli.lock pyproject.toml

# The files of npm packages that the pages of the console load. It needs npm, and nothing else does.
vendored:
	@sh requirements/npm/bundle.sh poolhouse/console/vendored

clean:
	rm -rf $(VENV) .poolhouse
