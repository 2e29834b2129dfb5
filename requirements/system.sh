#!/bin/sh
# Installs the missing ones of the named Debian packages, or prints what to install.
set -eu
command -v dpkg-query >/dev/null || { echo "this machine is not Debian: install libvirt, QEMU, gcc and the headers of Python yourself ($*)"; exit 0; }
missing=""
for each in "$@"; do
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$each" 2>/dev/null)" = installed ] || missing="$missing $each"
done
[ -n "$missing" ] || exit 0
as_root=""
if [ "$(id -u)" != 0 ]; then
  { command -v sudo && sudo true; } >/dev/null || { echo "system packages are missing; run as root: apt-get install --no-install-recommends$missing" >&2; exit 1; }
  as_root=sudo
fi
echo "installing system packages:$missing"
export DEBIAN_FRONTEND=noninteractive
# On a new machine, the first upgrade may still hold apt's lock.
$as_root apt-get update -qq -o DPkg::Lock::Timeout=300
$as_root apt-get install -y -o DPkg::Lock::Timeout=300 -qq --no-install-recommends $missing >/dev/null
