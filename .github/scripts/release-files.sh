#!/usr/bin/env bash
# release-files.sh VERSION: builds the files of a release in dist: the packaged chart, the manifests of `make manifests`,
# the kubectl plugin, the Python client and the agent. DOWNLOADS is the URL of the release's files, and HOMEPAGE that of the project;
# with both, dist also gets the krew manifest.
set -euo pipefail
version=$1
cd "$(dirname "$0")/../.."
rm -rf dist
make manifests plugin client agent
helm=$(.venv/bin/python -m poolhouse.stack.helm | tail -n 1)
"${helm#helm: }" package charts/poolhouse --destination dist
[ -z "${DOWNLOADS:-}" ] || .venv/bin/python -m poolhouse.cli.krew dist --version "v$version" --homepage "$HOMEPAGE" --archives "$DOWNLOADS" >dist/krew.yaml
ls -l dist
