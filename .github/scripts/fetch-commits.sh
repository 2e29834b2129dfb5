#!/usr/bin/env bash
# fetch-commits.sh LIST SERVER DIRECTORY: gets the repositories of a list such as .github/e2e/csi.txt, each at its commit.
# The commit's name is the checksum of all its files: git refuses content of another name.
set -euo pipefail
list=$1 server=$2 directory=$3
while read -r name version commit; do
  case $name in "" | "#"*) continue ;; esac
  echo "$name $version"
  git init -q "$directory/$name"
  git -C "$directory/$name" fetch -q --depth 1 "$server/$name" "$commit"
  git -C "$directory/$name" -c advice.detachedHead=false checkout -q "$commit"
done <"$list"
