"""No command lets texts of the cluster control the terminal."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner

from poolhouse.cli.live import LiveLines
from poolhouse.cli.main import main
from poolhouse.cli.output import (
    STRUCTURED,
    Column,
    CommandError,
    Failed,
    Listing,
    Unreachable,
    align_columns,
    confirm,
    echo,
    field,
    print_result,
    print_structured,
    style,
)
from poolhouse.service.progress_bar import ProgressBar
from poolhouse.service.terminal import has_controls

ROOT = Path(__file__).resolve().parent.parent.parent

EVIL = "a\x1b[2J\x1b]0;x\x07\r\x9b31m\x7f\x85\u202eb\u2028c"
SHOWN = "a^[[2J^[]0;x\\x07\\r\\x9b31m\\x7f\\x85\\u202eb\\u2028c"

PRINTERS = {"echo", "secho", "echo_via_pager", "confirm", "prompt", "pause", "edit", "style", "get_text_stream"}
"""functions of click that write to the terminal"""
WRITERS = {
    "poolhouse/cli/output.py": "the functions that all commands print by",
    "poolhouse/service/progress_bar.py": "it prints escaped lines",
    "poolhouse/cli/live.py": "it shows escaped lines",
    "poolhouse/cli/vm_streams.py": "it connects the terminal with the guest's console, as virtctl does",
    "poolhouse/stack/binaries.py": "it prints the progress of downloads, before there is a cluster",
    "poolhouse/stack/helm/__main__.py": "it prints the path of a program",
    "poolhouse/stack/engine/qemu/guest_packages.py": "it prints errors of the package manager of this machine",
}
"""the only modules that write to the terminal by themselves, and why"""


def modules() -> Iterator[Path]:
    """The modules of all commands, and what they print by."""
    for room in ("cli", "console", "stack"):
        yield from sorted((ROOT / "poolhouse" / room).rglob("*.py"))
    yield from (ROOT / "poolhouse" / "service" / "progress_bar.py", ROOT / "webhook" / "hooks.py")


def writes(source: str) -> Iterator[str]:
    """Yields the expressions of a module that write to the terminal."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = f"{node.value.id}.{node.attr}"
            if (node.value.id == "click" and node.attr in PRINTERS) or name in ("sys.stdout", "sys.stderr"):
                yield name
        elif isinstance(node, ast.ImportFrom):
            yield from (each.name for each in node.names if node.module == "click" and each.name in PRINTERS)
            yield from (each.name for each in node.names if node.module == "sys" and each.name.startswith("std"))
            yield from (str(node.module) for _ in node.names[:1] if str(node.module).startswith("rich"))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            yield "print"


def test_commands_write_only_by_the_functions_that_escape() -> None:
    found = {str(path.relative_to(ROOT)): [*writes(path.read_text())] for path in modules()}
    assert {path: how for path, how in found.items() if how and path not in WRITERS} == {}
    assert [path for path in WRITERS if not found[path]] == []


@pytest.mark.parametrize(
    "source",
    [
        "click.echo(message)",
        "click.secho(message, fg='red')",
        "click.confirm(message)",
        "from click import echo",
        "print(message)",
        "sys.stdout.write(message)",
        "from sys import stderr",
        "from rich.console import Console",
    ],
)
def test_ways_to_write_are_found(source: str) -> None:
    assert [*writes(source)]


class Row(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return EVIL


TABLE = Listing((field("NAME", "name"), Column("STATE", lambda row: row["state"], colour=lambda row: "red")))


def interact() -> None:
    with LiveLines() as view:
        view.show([EVIL, *align_columns([("A", EVIL)])], 1)
    with ProgressBar(EVIL, 1) as bar:
        bar.echo(EVIL)


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize(
    "act",
    [
        pytest.param(lambda: echo(EVIL), id="text"),
        pytest.param(lambda: echo(EVIL, err=True), id="remark"),
        pytest.param(lambda: print_result("text", EVIL), id="result"),
        pytest.param(lambda: TABLE.show("text", [Row()], nothing=""), id="table"),
        pytest.param(lambda: TABLE.show("text", [], nothing=EVIL), id="no rows"),
        pytest.param(
            lambda: Listing(TABLE.columns, name=lambda row: row["name"]).show("name", [Row()], nothing=""), id="names"
        ),
        pytest.param(lambda: echo(style(EVIL, "green")), id="coloured text"),
        pytest.param(lambda: confirm(EVIL), id="question"),
        pytest.param(interact, id="lines that change, without a terminal"),
    ],
)
def test_nothing_controls_the_terminal(act: Any, terminal: bool) -> None:
    done = CliRunner().invoke(click.Command("show", callback=act), color=terminal, input="y\n")
    printed = done.output.replace("\x1b[31m", "").replace("\x1b[32m", "").replace("\x1b[0m", "")
    assert SHOWN in printed
    assert not has_controls(printed)
    assert done.exit_code == 0


FORGED = "refused\nweb-1 is healthy\tnow"


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(lambda: echo(f"web-1 waits: {FORGED}"), id="text"),
        pytest.param(lambda: echo(FORGED, err=True), id="remark"),
        pytest.param(lambda: echo(style(FORGED, "red")), id="coloured text"),
        pytest.param(lambda: print_result("text", FORGED), id="result"),
        pytest.param(lambda: TABLE.show("text", [{"name": "a", "state": FORGED}], nothing=""), id="table"),
        pytest.param(lambda: confirm(FORGED), id="question"),
        pytest.param(lambda: ProgressBar("", 1).echo(FORGED), id="lines above a progress bar"),
        pytest.param(lambda: show_live(FORGED), id="lines that change"),
        pytest.param(lambda: CommandError(FORGED).show(), id="error"),
    ],
)
def test_a_text_of_the_cluster_does_not_look_like_a_line_of_the_command(act: Any) -> None:
    done = CliRunner().invoke(click.Command("show", callback=act), input="y\n")
    assert done.exit_code == 0, done.exception
    assert "web-1 is healthy" in done.output
    assert not [line for line in done.output.splitlines() if line.startswith("web-1 is healthy")]


def show_live(text: str) -> None:
    with LiveLines() as view:
        view.show([text], 1)


BLOCKS = {
    "poolhouse/cli/completion.py": "a script of click",
    "poolhouse/cli/conformance.py": "descriptions of checks",
    "poolhouse/cli/crds.py": "YAML",
    "poolhouse/cli/default.py": "libvirt's XML, which quotes texts",
    "poolhouse/cli/krew.py": "YAML",
    "poolhouse/cli/main.py": "errors of click, with words of the command line",
    "poolhouse/cli/manifests.py": "YAML",
    "poolhouse/cli/output.py": "YAML and JSON",
    "poolhouse/cli/up.py": "the components of this machine's stack",
}
"""the only modules that print several lines at once, with what these lines are"""


def test_only_quoted_texts_are_printed_with_their_line_feeds() -> None:
    found = {str(path.relative_to(ROOT)) for path in modules() if "echo_block(" in path.read_text()}
    assert found == BLOCKS.keys()


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("error", [CommandError, Failed, Unreachable, click.UsageError, click.BadParameter])
def test_errors_do_not_control_the_terminal(
    error: type[click.ClickException],
    terminal: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(**options: Any) -> None:
        raise error(EVIL)

    monkeypatch.setattr("poolhouse.cli.main.poolhouse", click.Command("fail", callback=fail))
    monkeypatch.setattr("poolhouse.cli.main._structured", lambda arguments: "json")
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    with pytest.raises(SystemExit):
        main([])
    printed = capsys.readouterr()
    assert "b\\u2028c" in printed.err
    assert not has_controls(printed.err + printed.out)
    assert EVIL in json.loads(printed.out)["error"]


def test_a_bug_does_not_control_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise RuntimeError(EVIL)

    monkeypatch.setattr("poolhouse.cli.main.poolhouse", click.Command("fail", callback=fail))
    with pytest.raises(SystemExit) as ended:
        main([])
    printed = capsys.readouterr().err
    assert ended.value.code == 1
    assert "in fail" in printed, "the traceback is there"
    assert f"RuntimeError: {SHOWN}" in printed
    assert not has_controls(printed)


LOGS = """
import logging, sys
import click
from poolhouse.cli import main as module
module.poolhouse = click.Command("log", callback=lambda: logging.getLogger("x").warning("%s", sys.argv[1]))
module.main([])
"""


def test_a_log_line_of_a_library_does_not_control_the_terminal() -> None:
    done = subprocess.run([sys.executable, "-c", LOGS, EVIL], capture_output=True, text=True, check=True)
    assert "b\\u2028c" in done.stderr
    assert not has_controls(done.stderr)


VALUES = [
    EVIL,
    {EVIL: EVIL},
    [f"first line\n{EVIL}\n"],
    {"k": f"größer 東京 {EVIL}"},
    "\x7f",
    "\x85",
    "\u202e",
    "é",
    "a\nb\n",
    "y",
    "017",
    "",
    None,
    {"a": [1, 2.5, True]},
    "x " * 200 + EVIL,
]


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("output", STRUCTURED)
def test_structured_output_is_faithful(output: str, value: Any) -> None:
    show = click.Command("show", callback=lambda: print_structured(output, value))
    printed = CliRunner().invoke(show, color=True).stdout
    assert not has_controls(printed)
    assert (json.loads if output == "json" else yaml.safe_load)(printed) == value


def test_yaml_of_other_scripts_is_readable() -> None:
    show = click.Command("show", callback=lambda: print_structured("yaml", {"a": "größer 東京", "b": "\x1b", "c": "ä"}))
    assert CliRunner().invoke(show).stdout == 'a: größer 東京\nb: "\\e"\nc: ä\n'
