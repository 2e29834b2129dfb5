"""Which values of a spec libvirt gets: words and numbers of the listed rows, never a path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from defaulter import fields, libvirt_merge, xml
from defaulter.libvirt_schema import DOMAIN, ElementSchema
from defaulter.libvirt_vm import build, unknown_fields, validate

PATHS = (
    "/bin/sh",
    "../../bin/sh",
    "./sh",
    "file:///etc/shadow",
    "unix:/run/x.sock",
    "\\\\host\\share",
    "a\n/b",
    "|id",
    "$(id)",
    "nbd://host:10809/disk",
)
PLACEHOLDERS = {"/source", "/kernel", "/initrd", "/dev/urandom", "/loader", "/tpm"}

Row = tuple[str | int, ...]


def rows(schema: ElementSchema = DOMAIN, path: Row = ()) -> Iterator[tuple[Row, bool]]:
    """Every path of a text in the spec, and whether libvirt may get a word or a number there."""
    if schema.withheld:
        yield path, False
        yield (*path, "path"), False
        return
    for name in (*schema.attributes, *([schema.text] if schema.text else ())):
        yield (*path, name), True
    for key, inner in schema.below.items():
        yield from rows(inner, (*path, key, 0) if inner.many else (*path, key))


def spec_with(path: Row, value: Any) -> Any:
    for step in reversed(path):
        value = [value] if step == 0 else {step: value}
    return value


def sent(spec: Any) -> list[str]:
    """Every text that libvirt gets."""
    root = build(spec)
    return [text for element in root.iter() for text in (element.tag, element.text or "", *element.attrib.values())]


@pytest.mark.parametrize("path", sorted({row for row, _ in rows()}, key=str))
def test_libvirt_gets_no_path_of_the_author(path: Row) -> None:
    expected = dict(rows())[path]
    for value in PATHS:
        spec = spec_with(path, value)
        problems = [error.path for error in validate(spec)]
        if expected:
            assert problems == [path], value
        else:
            assert not problems
            assert not [text for text in sent(spec) if value in text], f"{value} reached libvirt"


def test_values_of_the_host_are_withheld() -> None:
    withheld = {str(path[-1]) for path, reaches in rows() if not reaches and path[-1] != "path"}
    paths_and_backends = {"emulator", "driver", "source", "backend", "kernel", "initrd", "cmdline", "nvram", "binary"}
    assert paths_and_backends <= withheld
    assert set(spec_rows("loader")) == {"readonly", "secure", "type"}, "the path of the loader is no row"


def spec_rows(key: str) -> Iterator[str]:
    yield from (str(path[-1]) for path, reaches in rows() if reaches and key in path[:-1])


def test_unknown_elements_are_not_sent() -> None:
    spec = {
        "qemu:commandline": {"arg": "/evil"},
        "os": {"loader": {"path": "/evil"}, "nvram": "/evil"},
        "hooks": "/evil",
    }
    spec["devices"] = {"hostdevs": [{"source": "/evil"}], "filesystems": [{"driver": {"binary": "/evil"}}]}
    assert not list(validate(spec))
    assert not [text for text in sent(spec) if "evil" in text]


def test_unknown_fields_are_named() -> None:
    spec = {
        "sysinfo": {"type": "smbios"},
        "title": "a",
        "devices": {"disks": [{"geometry": {}, "source": {"file": "a"}}]},
    }
    assert list(unknown_fields(spec)) == ["sysinfo", "devices.disks[0].geometry"]


def specs(schema: ElementSchema = DOMAIN) -> st.SearchStrategy[Any]:
    texts = st.one_of(st.sampled_from(PATHS), st.sampled_from(["unix", "file", "q35", "block", "lun", "1"]), st.text())
    if schema.withheld:
        return st.one_of(texts, st.dictionaries(st.sampled_from(["file", "path", "dev", "value"]), texts))
    keys: dict[str, st.SearchStrategy[Any]] = dict.fromkeys(schema.attributes, texts)
    if schema.text:
        keys[schema.text] = texts
    for key, inner in schema.below.items():
        below = specs(inner)
        keys[key] = st.lists(below, max_size=2) if inner.many else below
    return st.fixed_dictionaries({}, optional=keys)


@given(specs())
def test_an_accepted_spec_sends_only_words_numbers_and_placeholders(spec: Any) -> None:
    if not list(validate(spec)):
        assert {text for text in sent(spec) if "/" in text} <= PLACEHOLDERS


@pytest.mark.sentence("4.26")
def test_a_source_has_a_placeholder_of_its_type() -> None:
    serial = {"type": "unix", "source": {"mode": "bind", "path": "/run/evil.sock"}}
    (source,) = build({"devices": {"serials": [serial]}}).iterfind("devices/serial/source")
    assert dict(source.attrib) == {"mode": "bind", "path": "/source"}
    disk = {"type": "network", "device": "disk", "source": {"protocol": "nbd", "name": "x"}}
    (found,) = build({"devices": {"disks": [disk]}}).iterfind("devices/disk")
    assert xml.write(found).startswith('<disk type="file" device="disk"><source file="/source"/>')


def test_the_alias_of_the_author_reaches_libvirt() -> None:
    root = build({"devices": {"disks": [{"alias": {"name": "ua-root"}}]}})
    assert [alias.get("name") for alias in root.iter("alias")] == ["ua-root"]
    assert libvirt_merge.with_libvirt_values({}, root)["devices"]["disks"] == [
        {"type": "file", "alias": {"name": "ua-root"}}
    ]


def test_the_rows_of_a_vmi_that_may_hold_a_path_are_no_files() -> None:
    """A VMI's spec has no row for a file either: where a path is accepted, libvirt compares or copies the text."""
    rows = (*fields.DOMAIN, *(row for devices in fields.DEVICES for row in devices.fields))
    compared = {"os/type/@machine", "cpu/@mode", "cpu/model", "clock/@timezone", "clock/@offset", "@name"}
    copied = {"os/cmdline", "serial", "features/hyperv/vendor_id/@value"}
    found = {row.xml for row in rows if row.codec.accepts("/bin/sh")}
    assert {path for path in found if not path.startswith(("sysinfo/", "clock/timer"))} == compared | copied
