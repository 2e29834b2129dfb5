"""Comments of values.yaml become descriptions of the schema and tables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from poolhouse.generate.chart import CHART, ROOT
from poolhouse.generate.chart_values import comments, described, tables, type_of, values

Json = dict[str, Any]

TEXT = """\
# About the file.

# Of the webhook.
webhook:
  # How many
  # Pods.
  replicas: 2
  # Its image.
  image: {tag: ""}

# The others.
controllers:
  replicas: 1
  # Another image.
  image: {tag: ""}
other: {}
#   an: example
"""
IMAGE = {"type": "object", "properties": {"tag": {"type": "string", "description": "The | tag."}}}
COMPONENT = {
    "type": "object",
    "properties": {"replicas": {"type": "integer", "minimum": 1}, "image": {"$ref": "#/$defs/image"}},
}
SCHEMA = {
    "$defs": {"image": IMAGE},
    "properties": {"webhook": COMPONENT, "controllers": COMPONENT, "other": {"type": "object"}},
}


def test_a_comment_describes_the_value_below_it() -> None:
    assert comments(TEXT) == {
        ("webhook",): "Of the webhook.",
        ("webhook", "replicas"): "How many Pods.",
        ("webhook", "image"): "Its image.",
        ("controllers",): "The others.",
        ("controllers", "image"): "Another image.",
    }


@pytest.mark.parametrize(
    ("path", "text"),
    [
        pytest.param(("webhook", "replicas"), "How many Pods.", id="its own comment"),
        pytest.param(("controllers", "replicas"), "How many Pods.", id="that of the first component"),
        pytest.param(("controllers", "image"), "Another image.", id="its own one takes precedence"),
    ],
)
def test_descriptions_of_the_schema(path: tuple[str, ...], text: str) -> None:
    node: Json = described(SCHEMA, comments(TEXT))
    for name in path:
        node = node["properties"][name]
    assert node["description"] == text


def test_a_description_without_a_comment_is_kept() -> None:
    assert described(SCHEMA, comments(TEXT))["$defs"]["image"] == IMAGE


def test_tables_have_all_values_and_their_defaults() -> None:
    defaults = {"webhook": {"replicas": 2, "image": {"tag": ""}}, "other": {}}
    page = tables(values(SCHEMA, defaults, comments(TEXT)))
    assert page.splitlines() == [
        "## webhook",
        "",
        "Of the webhook.",
        "",
        "| Value | Type | Default | Description |",
        "| --- | --- | --- | --- |",
        "| `webhook.replicas` | integer, at least 1 | `2` | How many Pods. |",
        "| `webhook.image` | object |  | Its image. |",
        '| `webhook.image.tag` | string | `""` |  |',
        "",
        "## other",
        "",
        "",
        "",
        "Type: object. Default: `{}`.",
    ]


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "integer", "minimum": 1, "maximum": 9}, "integer, 1 to 9"),
        ({"enum": ["", "a"]}, "empty, `a`"),
        ({"enum": [True, False, "auto"]}, "`true`, `false`, `auto`"),
        ({"anyOf": [{"type": "integer"}, {"type": "string", "pattern": "^[0-9]+%$"}]}, "integer or percentage"),
    ],
)
def test_types_in_words(schema: Json, words: str) -> None:
    assert type_of(schema) == words


def test_every_value_of_the_chart_is_described() -> None:
    schema = json.loads((ROOT / CHART / "values.schema.json").read_text())

    def silent(node: Json, path: str = "") -> Iterator[str]:
        for name, each in node.get("properties", {}).items():
            if not each.get("description"):
                yield path + name
            yield from silent(each, f"{path}{name}.")

    found = [*silent(schema), *(each for name, node in schema["$defs"].items() for each in silent(node, f"${name}."))]
    assert found == [], "a comment above the value in values.yaml describes it"
