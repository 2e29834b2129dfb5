"""The script that installs the virtual environment, with a Python that only writes down what it is asked for."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_SECONDS

SCRIPT = Path(__file__).parent.parent / "requirements" / "venv.sh"
PYTHON = """#!/bin/sh
echo "$*" >> "{log}"
case "$*" in
  *"-m pip --version") [ -e "{root}/pip" ] ;;
  "-m venv"*) mkdir -p .venv/bin; cp "$0" .venv/bin/python; echo "command = $0 -m venv $PWD/.venv" > .venv/pyvenv.cfg ;;
esac
"""


class Checkout:
    def __init__(self, directory: Path) -> None:
        self.directory, self.log, self.python = directory, directory / "log", directory / "python3"
        directory.mkdir()
        (directory / "pyproject.toml").touch()
        (directory / "pip").touch()
        self.python.write_text(PYTHON.format(log=self.log, root=directory))
        self.python.chmod(0o755)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", str(SCRIPT), *arguments],
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )

    def install(self) -> list[str]:
        """Returns what Python was asked for."""
        self.log.unlink(missing_ok=True)
        done = self.run("install", str(self.python), ".venv", ".venv/.installed-1")
        assert done.returncode == 0, done.stderr
        return self.log.read_text().splitlines() if self.log.exists() else []

    def usable(self) -> bool:
        return self.run("check", ".venv").returncode == 0


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "a checkout")


def test_packages_are_installed_once(checkout: Checkout) -> None:
    assert not checkout.usable()
    assert [each for each in checkout.install() if "install" in each]
    assert checkout.usable()
    assert checkout.install() == []


@pytest.mark.parametrize("copied", [False, True])
def test_an_environment_in_another_directory_is_not_usable(checkout: Checkout, copied: bool) -> None:
    checkout.install()
    other = checkout.directory.with_name("other")
    if copied:
        shutil.copytree(checkout.directory, other, symlinks=True)
    else:
        checkout.directory.rename(other)
    checkout.directory = other
    assert not checkout.usable()


def test_an_environment_without_its_python_is_not_usable(checkout: Checkout) -> None:
    checkout.install()
    (checkout.directory / ".venv/bin/python").unlink()
    (checkout.directory / ".venv/bin/python").symlink_to("/no/longer/there")
    assert not checkout.usable()


def test_an_environment_behind_a_link_is_usable(checkout: Checkout) -> None:
    checkout.install()
    (checkout.directory / ".venv").rename(checkout.directory / "elsewhere")
    (checkout.directory / ".venv").symlink_to("elsewhere")
    (checkout.directory / ".venv/pyvenv.cfg").write_text(f"command = python -m venv {checkout.directory}/elsewhere\n")
    assert checkout.usable()


def test_an_environment_of_another_tool_is_kept(checkout: Checkout) -> None:
    checkout.install()
    (checkout.directory / ".venv/pyvenv.cfg").write_text("home = /usr/bin\nuv = 0.9\n")
    (checkout.directory / ".venv/.installed-1").unlink()
    assert not [each for each in checkout.install() if "-m venv" in each]


def test_an_environment_without_pip_is_made_again(checkout: Checkout) -> None:
    checkout.install()
    (checkout.directory / ".venv/.installed-1").unlink()
    (checkout.directory / "pip").unlink()
    assert "-m venv --clear .venv" in checkout.install()


def test_a_second_make_waits_for_the_first(checkout: Checkout) -> None:
    checkout.install()
    with (checkout.directory / "pyproject.toml").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = ["sh", str(SCRIPT), "install", str(checkout.python), ".venv", ".venv/.installed-1"]
        second = subprocess.Popen(command, cwd=checkout.directory, stdout=subprocess.PIPE, text=True)
        assert second.stdout.readline() == "waiting for another make in this directory\n"
    assert second.communicate(timeout=PATIENCE_SECONDS) == ("", None)
    assert second.returncode == 0
