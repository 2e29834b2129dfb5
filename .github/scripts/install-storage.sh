#!/usr/bin/env bash
# install-storage.sh DIRECTORY: installs a CSI driver with snapshots from the repositories that fetch-commits.sh got, and
# makes its storage class the default. It keeps volumes on one node: VMs with disks run there, the others anywhere.
set -euo pipefail
directory=$1
driver=$directory/csi-driver-host-path/deploy/kubernetes-1.34/hostpath
snapshots=$directory/external-snapshotter
kubectl apply --kustomize "$snapshots/client/config/crd"
kubectl apply --namespace kube-system --kustomize "$snapshots/deploy/kubernetes/snapshot-controller"
kubectl wait --for=condition=Established --timeout=60s crd/volumesnapshotclasses.snapshot.storage.k8s.io
for rules in external-{provisioner,attacher,resizer}/deploy/kubernetes/rbac.yaml \
  external-snapshotter/deploy/kubernetes/csi-snapshotter/rbac-csi-snapshotter.yaml \
  external-health-monitor/deploy/kubernetes/external-health-monitor-controller/rbac.yaml; do
  kubectl apply -f "$directory/$rules"
done
kubectl apply -f "$driver/csi-hostpath-driverinfo.yaml" -f "$driver/csi-hostpath-plugin.yaml" -f "$driver/csi-hostpath-snapshotclass.yaml"
kubectl apply -f "$directory/csi-driver-host-path/examples/csi-storageclass.yaml"
kubectl annotate --overwrite storageclass --all storageclass.kubernetes.io/is-default-class=false
kubectl annotate --overwrite storageclass csi-hostpath-sc storageclass.kubernetes.io/is-default-class=true
[ "${WAIT:-yes}" = no ] || kubectl rollout status --timeout=5m statefulset/csi-hostpathplugin
[ "${WAIT:-yes}" = no ] || kubectl rollout status --timeout=5m --namespace kube-system deployment/snapshot-controller
