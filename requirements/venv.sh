#!/bin/sh
# venv.sh install PYTHON VENV STAMP: installs the locked packages and Poolhouse, unless the file STAMP exists.
# venv.sh check VENV: fails if the virtual environment cannot be used here any more.
set -eu

# Its directory may have been moved or copied, and an upgrade of the system may have taken its Python away. What another
# tool than venv has made records no directory.
usable() {
  "$1/bin/python" -c '' 2>/dev/null || return 1
  recorded=$(sed -n 's|^command = .* -m venv [^/]*/|/|p' "$1/pyvenv.cfg" 2>/dev/null) || return 1
  [ -z "$recorded" ] || [ "$(readlink -f "$recorded")" = "$(readlink -f "$1")" ]
}

install() {
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed: make PYTHON=python3.11")'
  # Without pip, an earlier run was interrupted.
  { usable "$2" && "$2/bin/python" -m pip --version >/dev/null 2>&1; } || "$1" -m venv --clear "$2"
  echo "installing Python packages into $2"
  set -- "$2/bin/python" -m pip --quiet --disable-pip-version-check install
  "$@" --require-hashes -r requirements/all.lock
  "$@" --no-deps --no-build-isolation -e .
}

case $1 in
  check) usable "$2" ;;
  install)
    # Two pips at once would damage each other's packages. The lock ends with this shell.
    exec 9<pyproject.toml
    if command -v flock >/dev/null && ! flock -n 9; then
      echo "waiting for another make in this directory"
      flock 9
    fi
    [ -e "$4" ] || { install "$2" "$3" && rm -f "$3"/.installed-* && touch "$4"; }
    ;;
esac
