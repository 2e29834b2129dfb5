#!/bin/sh
# Puts Debian's prometheus and promtool into a directory, for tests that ask a real one. Unpacked and not installed: the
# package would start a server on all addresses. Says so where it can't be had; the tests that want it are skipped then.
set -eu
into=$1
if command -v prometheus >/dev/null && command -v promtool >/dev/null; then exit 0; fi
[ -x "$into/promtool" ] && exit 0
command -v apt-get >/dev/null || { echo "no prometheus here: alerts and dashboard are not tried on one"; exit 0; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
fetch() { apt-get download -qq prometheus >>log 2>&1; }
# A machine that has never listed its packages can still do so, given the right.
if ! { fetch || { [ "$(id -u)" = 0 ] && apt-get update -qq >>log 2>&1 && fetch; }; } || ! dpkg -x prometheus_*.deb tree; then
  echo "Debian's prometheus could not be had: alerts and dashboard are not tried on one"
  cat log
  exit 0
fi
mkdir -p "$into"
cp tree/usr/bin/prometheus tree/usr/bin/promtool "$into/"
