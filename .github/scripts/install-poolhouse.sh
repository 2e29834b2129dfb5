#!/usr/bin/env bash
# install-poolhouse.sh CLUSTER: builds both images, loads them into the kind cluster, and installs the chart with them.
# PYTHON is an interpreter with the requirements of this repository.
set -euo pipefail
cluster=$1
cd "$(dirname "$0")/../.."
version=$(sed -n 's/^appVersion: //p' charts/poolhouse/Chart.yaml)
docker build --tag "poolhouse/poolhouse:$version" .
docker build --tag "poolhouse/poolhouse-defaulter:$version" --file Dockerfile.defaulter .
go -C requirements/tools tool kind load docker-image --name "$cluster" "poolhouse/poolhouse:$version" "poolhouse/poolhouse-defaulter:$version"
helm=$("${PYTHON:-.venv/bin/python}" -m poolhouse.stack.helm | tail -n 1)
kubectl create namespace poolhouse-system --dry-run=client --output yaml | kubectl apply -f -
kubectl label --overwrite namespace poolhouse-system pod-security.kubernetes.io/enforce=restricted
"${helm#helm: }" upgrade --install poolhouse charts/poolhouse --namespace poolhouse-system --wait --timeout 10m
