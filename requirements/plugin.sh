#!/bin/sh
# plugin.sh PYTHON DIRECTORY: builds the archive of kubectl-poolhouse that krew installs, for this machine's system and
# Python. The archive has all dependencies, but no Python interpreter, which must have the same minor version.
set -eu
python=$1 directory=$2
system=$(uname -s | tr '[:upper:]' '[:lower:]')
case $(uname -m) in x86_64) arch=amd64 ;; aarch64 | arm64) arch=arm64 ;; *) arch=$(uname -m) ;; esac
minor=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
draft=$(mktemp -d)
trap 'rm -rf "$draft"' EXIT
"$python" -m pip install --quiet --disable-pip-version-check --no-compile --target "$draft/lib" --require-hashes -r requirements/cli.lock
rm -rf "$draft/lib/bin" # scripts with the path of this Python; pip would warn of them
"$python" -m pip install --quiet --disable-pip-version-check --no-compile --target "$draft/lib" --no-deps --no-build-isolation .
rm -rf "$draft/lib/bin" "$draft/lib/share" "$draft/lib/poolhouse/stack"
for each in "kubectl-poolhouse poolhouse.cli.main" "kubectl_complete-poolhouse poolhouse.cli.completion"; do
  set -- $each
  cat >"$draft/$1" <<EOF
#!/bin/sh
# Made for Python $minor. The libraries are beside this file; a link to it may be anywhere.
here=\$(dirname "\$(readlink -f "\$0")")
command -v python$minor >/dev/null || { echo "kubectl poolhouse: python$minor is not installed" >&2; exit 1; }
exec python$minor -P -c 'import sys; sys.path.insert(0, sys.argv.pop(1)); sys.argv[0] = "$1"; from $2 import main; main()' "\$here/lib" "\$@"
EOF
  chmod +x "$draft/$1"
done
cp README.md LICENSE NOTICE "$draft/"
mkdir -p "$directory"
tar -C "$draft" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -czf "$directory/kubectl-poolhouse-$system-$arch.tar.gz" .
echo "$directory/kubectl-poolhouse-$system-$arch.tar.gz"
