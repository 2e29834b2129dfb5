"""How people write the name of an object."""

from __future__ import annotations

import click
import pytest

from cli.resource_names import POOL, named_kinds, parse_name, qualified_name

KINDS = ("VirtualMachineInstance", "VirtualMachine")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("web", "VirtualMachineInstance"),
        ("vmi/web", "VirtualMachineInstance"),
        ("VMIs/web", "VirtualMachineInstance"),
        ("vm/web", "VirtualMachine"),
        ("virtualmachines/web", "VirtualMachine"),
        ("virtualmachine.kubevirt.io/web", "VirtualMachine"),
        ("virtualmachines.v1.kubevirt.io/web", "VirtualMachine"),
    ],
)
def test_a_name_is_written_as_kubectl_takes_it(text: str, kind: str) -> None:
    assert parse_name(text, *KINDS) == (kind, "web")


@pytest.mark.parametrize("text", ["", "vm/", "pod/web", "/"])
def test_what_is_no_name_is_told_the_forms(text: str) -> None:
    with pytest.raises(click.UsageError, match="is none of NAME, vmi/NAME, vm/NAME"):
        parse_name(text, *KINDS)


@pytest.mark.parametrize("kind", [kind.kind for kind in named_kinds()])
def test_what_is_printed_by_name_is_taken_again(kind: str) -> None:
    assert parse_name(qualified_name(kind, "a"), kind) == (kind, "a")


def test_an_option_takes_the_name_alone() -> None:
    assert POOL.convert("vmpool/web", None, None) == "web"
    with pytest.raises(click.BadParameter, match="is none of"):
        POOL.convert("vm/web", None, None)
