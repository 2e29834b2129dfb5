#!/usr/bin/env bash
# fetch-asset.sh OWNER/NAME VERSION FILE TARGET: downloads a file of a release and compares it with the digest that GitHub
# recorded when the file was uploaded. KubeVirt and CDI publish neither checksums nor signatures of their manifests, so
# this detects a damaged download, but no release that its owner has replaced. A file without a digest is refused.
set -euo pipefail
repository=$1 version=$2 file=$3 target=$4
gh=${GH:-gh}
digest=$("$gh" api "repos/$repository/releases/tags/$version" --jq ".assets[] | select(.name == \"$file\") | .digest")
[[ $digest =~ ^sha256:[0-9a-f]{64}$ ]] || { echo "$repository $version: $file has no digest, but: ${digest:-nothing}" >&2; exit 1; }
"$gh" release download "$version" --repo "$repository" --pattern "$file" --output "$target" --clobber
echo "${digest#sha256:}  $target" | sha256sum --check --quiet
echo "$repository $version: $file $digest"
