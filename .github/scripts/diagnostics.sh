#!/usr/bin/env bash
# diagnostics.sh DIRECTORY: writes the state of the cluster of the kubeconfig into files: nodes, objects of KubeVirt, CDI
# and Poolhouse, events and logs, without Secrets. A command that fails or hangs leaves its error in its file, and the
# others go on: it runs after a failure.
set -uo pipefail
directory=$1
seconds=${SECONDS_EACH:-60}
mkdir -p "$directory/logs"

# keep FILE COMMAND...
keep() {
  local file=$directory/$1
  timeout "$seconds" "${@:2}" >"$file" 2>&1 || echo "exit code $?: ${*:2}" >>"$file"
}

get() { keep "$1" kubectl --request-timeout=20s get "${@:2}"; }

get nodes.txt nodes --output wide
get pods.txt pods --all-namespaces --output wide
get events.txt events --all-namespaces --sort-by=.lastTimestamp
get crds.txt customresourcedefinitions
get apiservices.txt apiservices
get storage.txt storageclasses,persistentvolumes,persistentvolumeclaims --all-namespaces --output wide
get webhooks.yaml mutatingwebhookconfigurations,validatingwebhookconfigurations --output yaml
get leases.yaml leases --namespace poolhouse-system --output yaml
keep nodes-described.txt kubectl --request-timeout=20s describe nodes
keep pods-described.txt kubectl --request-timeout=20s describe pods --all-namespaces
# Each by itself: a cluster without one of these kinds has the others.
for kind in kubevirts.kubevirt.io virtualmachines.kubevirt.io virtualmachineinstances.kubevirt.io \
  virtualmachineinstancemigrations.kubevirt.io virtualmachinepools.kubevirt.io migrationpolicies.kubevirt.io \
  virtualmachineinstancereplicasets.kubevirt.io virtualmachinewarmpools.poolhouse.dev virtualmachineclaims.poolhouse.dev \
  virtualmachinesnapshots.snapshot.kubevirt.io volumesnapshots.snapshot.storage.k8s.io \
  cdis.cdi.kubevirt.io datavolumes.cdi.kubevirt.io storageprofiles.cdi.kubevirt.io; do
  get "$kind.yaml" "$kind" --all-namespaces --output yaml
done
pods=$(timeout "$seconds" kubectl --request-timeout=20s get pods --all-namespaces --no-headers --output custom-columns=:.metadata.namespace,:.metadata.name 2>/dev/null)
while read -r namespace pod; do
  case $namespace in
  "" | kube-node-lease | local-path-storage) ;;
  *) keep "logs/$namespace-$pod.txt" kubectl --request-timeout=20s logs --namespace "$namespace" "$pod" --all-containers --prefix --tail=2000 ;;
  esac
done <<<"$pods"
# It makes many requests in turn.
seconds=$((seconds * 5))
keep support-bundle.txt "${POOLHOUSE:-.venv/bin/poolhouse}" support-bundle --file "$directory/poolhouse.tar.gz"
echo "the cluster's state is in $directory"
