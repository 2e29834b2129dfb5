#!/usr/bin/env bash
# install-kubevirt.sh KUBEVIRT CDI: installs these releases with their operators, and waits until both are available and
# say that they have these versions. PYTHON is an interpreter with the requirements of this repository.
set -euo pipefail
kubevirt=$1 cdi=$2
here=$(dirname "$0")
python=${PYTHON:-.venv/bin/python}
files=$(mktemp -d)
trap 'rm -rf "$files"' EXIT

# install NAME REPOSITORY VERSION DEPLOYMENT CRD: applies the operator's manifests and waits until it can be used.
install() {
  "$here/fetch-asset.sh" "$2" "$3" "$1-operator.yaml" "$files/$1.yaml"
  kubectl apply --server-side -f "$files/$1.yaml"
  kubectl wait --for=condition=Established --timeout=60s "crd/$5"
  kubectl rollout status --timeout=10m --namespace "$1" "deployment/$4"
}

# expect WHAT VERSION ARGUMENT...: compares the version that `kubectl get ARGUMENT...` prints.
expect() {
  local found
  found=$(kubectl get "${@:3}")
  [ "$found" = "$2" ] || { echo "$1 is $found, expected $2" >&2; return 1; }
  echo "$1 $found is available"
}

install kubevirt kubevirt/kubevirt "$kubevirt" virt-operator kubevirts.kubevirt.io
"$python" "$here/custom_resources.py" kubevirt "$kubevirt" | kubectl apply -f -
install cdi kubevirt/containerized-data-importer "$cdi" cdi-operator cdis.cdi.kubevirt.io
"$python" "$here/custom_resources.py" cdi | kubectl apply -f -
kubectl wait --for=condition=Available --timeout=15m --namespace kubevirt kubevirt/kubevirt
expect KubeVirt "$kubevirt" kubevirt kubevirt --namespace kubevirt --output 'jsonpath={.status.observedKubeVirtVersion}'
kubectl wait --for=condition=Available --timeout=10m cdi/cdi
expect CDI "$cdi" cdi cdi --output 'jsonpath={.status.observedVersion}'
