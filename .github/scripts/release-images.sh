#!/usr/bin/env bash
# release-images.sh REGISTRY VERSION REVISION DIRECTORY: builds both images for this machine's architecture and pushes
# them. The base has one digest in both. DIRECTORY gets their bills of materials, and the file images.txt: a line
# "IMAGE DIGEST" for each. DOCKER is the program, so that a test can replace it.
set -euo pipefail
registry=$1 version=$2 revision=$3 directory=$4
docker=${DOCKER:-docker}
base=debian:12-slim
mkdir -p "$directory"
digest=$("$docker" buildx imagetools inspect "$base" --format '{{.Manifest.Digest}}')
[[ $digest =~ ^sha256:[0-9a-f]{64}$ ]] || { echo "$base has no digest, but: $digest" >&2; exit 1; }
echo "base: $base@$digest"
: >"$directory/images.txt"
for each in "poolhouse Dockerfile" "poolhouse-defaulter Dockerfile.defaulter"; do
  read -r name file <<<"$each"
  image=$registry/poolhouse/$name:$version
  arguments=(-f "$file" --build-arg "BASE=$base" --build-arg "DIGEST=$digest" --build-arg "VERSION=$version" --build-arg "REVISION=$revision")
  "$docker" build "${arguments[@]}" -t "$image" .
  "$docker" build "${arguments[@]}" --target sbom --output "$directory/$name" .
  mv "$directory/$name/sbom.json" "$directory/$name-$version.cdx.json"
  rmdir "$directory/$name"
  "$docker" push "$image"
  pushed=$("$docker" image inspect "$image" --format '{{range .RepoDigests}}{{println .}}{{end}}' | grep -F "${image%:*}@" | head -n 1)
  echo "${image%:*} ${pushed#*@}" >>"$directory/images.txt"
done
cat "$directory/images.txt"
