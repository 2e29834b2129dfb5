"""Formats of lists."""

from __future__ import annotations

from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.cli.disks import LISTING as DISKS
from poolhouse.cli.hardware import DEVICES
from poolhouse.cli.output import Column, Listing, align_columns, field
from poolhouse.cli.overview import LISTING as OVERVIEW
from poolhouse.cli.parameters import qualified_name
from poolhouse.cli.plan import STEPS
from poolhouse.cli.policy import IMPACT
from poolhouse.cli.rollout import HISTORY
from poolhouse.cli.warmpool import FINDINGS, STATUS

COLUMNS = (field("NAME", "name"), field("READY", "ready"), field("MORE", "more", wide=True))
THINGS = Listing(COLUMNS, name=lambda row: f"thing/{row['name']}")
ROWS: list[Json] = [
    {"namespace": "x", "name": "a", "ready": None, "more": 1},
    {"namespace": "y", "name": "a-long-name", "ready": True, "more": 2},
]


def shown(listing: Listing, *arguments: str, rows: list[Json] = ROWS, color: bool = False, **how: Any) -> Result:
    @click.command()
    @listing.option
    def show(output: str) -> None:
        listing.show(output, rows, nothing="there is none", **how)

    return CliRunner().invoke(show, arguments, color=color)


@pytest.mark.parametrize(
    ("output", "printed"),
    [
        ("text", "NAME          READY\na             -\na-long-name   true\n"),
        ("wide", "NAME          READY   MORE\na             -       1\na-long-name   true    2\n"),
        ("name", "thing/a\nthing/a-long-name\n"),
        ("yaml", "- namespace: x\n  name: a\n  ready: null\n  more: 1\n"),
    ],
)
def test_rows_in_every_format(output: str, printed: str) -> None:
    done = shown(THINGS, "-o", output)
    assert (done.stdout.startswith(printed), done.stderr) == (True, "")


def test_in_all_namespaces_each_line_begins_with_its_own() -> None:
    assert shown(THINGS, everywhere=True).stdout.splitlines()[1].split() == ["x", "a", "-"]


def test_an_object_of_two_lines_is_named_once() -> None:
    assert shown(THINGS, "-o", "name", rows=[ROWS[0], ROWS[0]]).stdout == "thing/a\n"


def test_programs_may_get_more_than_the_rows() -> None:
    assert shown(THINGS, "-o", "json", whole={"all": 1}).stdout == '{\n  "all": 1\n}\n'


@pytest.mark.parametrize("output", ["text", "wide", "name"])
def test_without_rows_text_formats_print_a_sentence(output: str) -> None:
    done = shown(THINGS, "-o", output, rows=[])
    assert (done.stdout, done.stderr, done.exit_code) == ("", "there is none\n", 0)


def test_without_rows_json_is_an_empty_list() -> None:
    assert shown(THINGS, "-o", "json", rows=[]).stdout == "[]\n"


@pytest.mark.parametrize(
    ("listing", "output"),
    [
        pytest.param(Listing(COLUMNS), "name", id="rows that are no objects"),
        pytest.param(Listing(COLUMNS[:2]), "wide", id="nothing more to say"),
    ],
)
def test_formats_without_columns_are_not_offered(listing: Listing, output: str) -> None:
    done = shown(listing, "-o", output)
    assert done.exit_code == 2
    assert f"'{output}' is not one of 'text'" in done.stderr


RED = Listing((Column("STATE", lambda row: "bad", colour=lambda row: "red"),))


@pytest.mark.parametrize(("terminal", "coloured"), [(True, True), (False, False)])
def test_only_terminals_get_colours(terminal: bool, coloured: bool) -> None:
    assert ("\x1b[31mbad" in shown(RED, rows=[{}], color=terminal).stdout) is coloured


def test_a_column_is_as_wide_as_its_longest_cell() -> None:
    assert [*align_columns([("A", "B"), ("long", "x")])] == ["A      B", "long   x"]


class Anything(dict[str, Any]):
    """A row that has whatever is asked of it, as rows of programs have fields that no column shows."""

    def __missing__(self, key: str) -> Any:
        return {"state": "Healthy", "kind": "VirtualMachinePool", "changes": [], "failures": None}.get(key, "x")


EVERY = {
    "overview": OVERVIEW,
    "disks": DISKS,
    "warmpool status": STATUS,
    "warmpool doctor": FINDINGS,
    "rollout history": HISTORY,
    "policy impact": IMPACT,
    "plan": STEPS,
    "hardware": DEVICES,
}


@pytest.mark.parametrize("listing", [pytest.param(each, id=name) for name, each in EVERY.items()])
def test_every_list_is_printed_in_all_that_it_offers(listing: Listing) -> None:
    titles = [each.title for each in listing.columns]
    assert len(set(titles)) == len(titles)
    assert next(listing.lines("wide", [Anything()])).split("   ")[0] == titles[0]
    if listing.name:
        [name] = listing.lines("name", [Anything()])
        assert name.count("/") == 1


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("VirtualMachine", "virtualmachine.kubevirt.io/a"),
        ("VirtualMachineClaim", "virtualmachineclaim.poolhouse.dev/a"),
        ("PersistentVolumeClaim", "persistentvolumeclaim/a"),
        ("DataVolume", "datavolume.cdi.kubevirt.io/a"),
    ],
)
def test_objects_have_the_names_that_kubectl_prints(kind: str, name: str) -> None:
    assert qualified_name(kind, "a") == name
