#!/bin/sh
# Puts Debian's prometheus and promtool into a directory, for the tests of alerts and the dashboard. The package is
# unpacked and not installed, because it would start a server on all addresses. Without it those tests are skipped.
set -eu
into=$1
if command -v prometheus >/dev/null && command -v promtool >/dev/null; then exit 0; fi
[ -x "$into/promtool" ] && exit 0
command -v apt-get >/dev/null || { echo "prometheus is not installed: the tests of alerts and the dashboard are skipped"; exit 0; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
fetch() { apt-get download -qq prometheus >>log 2>&1; }
# A new machine has no package lists; root can fetch them.
if ! { fetch || { [ "$(id -u)" = 0 ] && apt-get update -qq >>log 2>&1 && fetch; }; } || ! dpkg -x prometheus_*.deb tree; then
  echo "Debian's prometheus could not be downloaded: the tests of alerts and the dashboard are skipped"
  cat log
  exit 0
fi
mkdir -p "$into"
cp tree/usr/bin/prometheus tree/usr/bin/promtool "$into/"
