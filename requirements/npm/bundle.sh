#!/bin/sh
# Makes the files of poolhouse/console/vendored, in the folder $1, from the npm packages of package-lock.json.
set -eu
to=$(realpath "$1")
cd "$(dirname "$0")"
modules=$(mktemp -d)
trap 'rm -rf "$modules"' EXIT
cp package.json package-lock.json "$modules"
cd "$modules"
npm ci --silent --ignore-scripts --no-audit --no-fund
cd node_modules
for each in xterm.js=@xterm/xterm/lib/xterm.mjs novnc.js=@novnc/novnc/core/rfb.js; do
  ./.bin/esbuild "${each#*=}" --bundle --minify --format=esm --target=es2022 --log-level=warning --legal-comments=none \
    --banner:js="/* From npm packages, by requirements/npm/bundle.sh. LICENCES.txt has the licences. */" --outfile="$to/${each%=*}"
done
cp @xterm/xterm/css/xterm.css "$to"
{ printf "%s\n\n" "== @novnc/novnc/core/crypto/des.js"; sed "/\*\//q" @novnc/novnc/core/crypto/des.js; echo; } > "$to/LICENCES.txt"
for each in @xterm/xterm/LICENSE @novnc/novnc/LICENSE.txt @novnc/novnc/vendor/pako/LICENSE; do
  printf '%s\n\n' "== $each"; cat "$each"; echo
done >> "$to/LICENCES.txt"
cd "$to" && sha256sum -- LICENCES.txt novnc.js xterm.css xterm.js > SHA256SUMS
