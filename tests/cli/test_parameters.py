"""Names of objects and durations in the forms of kubectl."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from poolhouse.cli.main import poolhouse
from poolhouse.cli.parameters import NAMED_KINDS, POOL, Duration, parse_name, qualified_name

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
def test_an_invalid_name_is_an_error_with_the_forms(text: str) -> None:
    with pytest.raises(click.UsageError, match="is invalid: give NAME, vmi/NAME, vm/NAME"):
        parse_name(text, *KINDS)


@pytest.mark.parametrize("kind", [kind.kind for kind in NAMED_KINDS])
def test_printed_names_are_accepted(kind: str) -> None:
    assert parse_name(qualified_name(kind, "a"), kind) == (kind, "a")


def test_an_option_takes_the_name_alone() -> None:
    assert POOL.convert("vpool/web", None, None) == "web"
    with pytest.raises(click.BadParameter, match="is invalid: give"):
        POOL.convert("vm/web", None, None)


@pytest.mark.parametrize(
    "line", ["claim build --wait 60s", "claim --wait 60s", "claim --wait=60s", "release --wait 60s build"]
)
def test_a_time_after_wait_is_pointed_to_timeout(line: str) -> None:
    result = CliRunner().invoke(poolhouse, line.split())
    assert result.exit_code == 2
    assert "--wait takes no time; --timeout 60s limits the wait" in result.output


@pytest.mark.parametrize(
    ("text", "value"),
    [("10s", 10), ("1m30s", 90), ("2h", 7200), ("500ms", 0.5), ("7", 7), ("0", 0), ("1.5m", 90)]
    + [(wrong, None) for wrong in ("", "s", "ten", "10 s", "-1s", "5d")],
)
def test_durations_have_the_form_of_kubectl(text: str, value: float | None) -> None:
    if value is None:
        with pytest.raises(click.BadParameter, match="is not a duration"):
            Duration().convert(text, None, None)
    else:
        assert Duration().convert(text, None, None) == value
