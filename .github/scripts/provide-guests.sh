#!/usr/bin/env bash
# provide-guests.sh IMAGE ADDRESS DIRECTORY: takes the disk out of a container disk and serves it by HTTP on ADDRESS, which
# Pods reach, until the machine's job ends. Then it imports the disk as the claim and DataSource golden/guest, to be cloned.
set -euo pipefail
image=$1 address=$2 directory=$3
docker=${DOCKER:-docker} port=${PORT:-8480} size=${SIZE:-256Mi}
mkdir -p "$directory/www"
container=$("$docker" create "$image" none)
"$docker" cp "$container:/disk" "$directory/files"
"$docker" rm "$container" >/dev/null
mapfile -t disks < <(find "$directory/files" -type f)
[ "${#disks[@]}" = 1 ] || { echo "$image: expected one file in /disk, found: ${disks[*]:-none}" >&2; exit 1; }
mv "${disks[0]}" "$directory/www/guest.img"
nohup python3 -m http.server --bind "$address" --directory "$directory/www" "$port" >"$directory/server.log" 2>&1 &
echo $! >"$directory/server.pid"
curl --silent --show-error --fail --head --retry 30 --retry-delay 1 --retry-connrefused --max-time 60 "http://$address:$port/guest.img"
kubectl apply -f - <<EOF
apiVersion: v1
kind: Namespace
metadata: {name: golden}
---
apiVersion: cdi.kubevirt.io/v1beta1
kind: DataVolume
metadata:
  name: guest
  namespace: golden
  annotations: {cdi.kubevirt.io/storage.bind.immediate.requested: "true"}
spec:
  source: {http: {url: "http://$address:$port/guest.img"}}
  pvc: {accessModes: [ReadWriteOnce], resources: {requests: {storage: $size}}}
---
apiVersion: cdi.kubevirt.io/v1beta1
kind: DataSource
metadata: {name: guest, namespace: golden}
spec: {source: {pvc: {namespace: golden, name: guest}}}
EOF
kubectl wait --for=jsonpath='{.status.phase}'=Succeeded --timeout="${WAIT:-10m}" --namespace golden datavolume/guest
