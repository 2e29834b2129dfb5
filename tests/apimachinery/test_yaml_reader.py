from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from poolhouse.api.apimachinery.yaml_reader import InvalidYAML, load, load_all

BOMB = "a: &a [x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 8)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("a: [1", "expected ',' or ']'", id="not YAML"),
        pytest.param("a: &a [*a]", "an alias contains itself", id="an alias that contains itself"),
        pytest.param(BOMB, "expand to more than 200000 values", id="aliases that expand to millions of values"),
        pytest.param("a: .nan", "JSON has no .nan", id="no number"),
        pytest.param("a: -.inf", "JSON has no -.inf", id="an infinite number"),
        pytest.param("a: !!int x", "'x' is no int", id="a tag that the text does not have"),
        pytest.param("~: 1", "null is no key", id="null as a key"),
        pytest.param("[" * 5000, "nested too deeply", id="deep nesting"),
        pytest.param("{<<: 1}", "<< needs a mapping", id="a merge of a number"),
        pytest.param('a: "\\ud83d"', "invalid Unicode", id="half a surrogate pair"),
        pytest.param('{"\\ud83d": 1}', "invalid Unicode", id="half a surrogate pair in JSON"),
        pytest.param("a:\n\tb: 1", "cannot start any token", id="a tab as indentation"),
        pytest.param("? {a: b}\n: c", "an object or a list is no key", id="an object as a key"),
        pytest.param("---\na: 1\n--- b: 2\n", "line 3: only a comment may follow ---, not 'b: 2'", id="text after ---"),
        pytest.param("a: 1\n-----\nb: 2\n", "line 2: only a comment", id="a line of dashes"),
        pytest.param("%YAML 1.1\n---\na: 1\n", "<document start>", id="a directive"),
        pytest.param(" a: 1\nb: 2\n", "<document start>", id="a first line that is indented"),
        pytest.param("a: |\n  \tb\n", "a tab where spaces", id="a tab in the indentation of text"),
        pytest.param('a: "\\/"', "unknown escape character", id="an escaped slash"),
        pytest.param("a: !!binary '%%%'", "base64", id="no bytes"),
        pytest.param("---\n---\n\n---\na: [1\n", "line 5", id="the line of a mistake in a later document"),
        pytest.param(b"\xff\xfe\xff", "unacceptable character", id="not text"),
    ],
)
def test_a_text_that_no_kubernetes_object_has_is_refused(text: str | bytes, message: str) -> None:
    with pytest.raises(InvalidYAML, match=message.replace("]", r"\]")):
        load_all(text)


def test_a_date_is_text_as_in_kubectl() -> None:
    assert load("{a: 2001-01-01, b: 2001-99-99, c: 2001-01-01T00:00:00Z}") == {
        "a": "2001-01-01",
        "b": "2001-99-99",
        "c": "2001-01-01T00:00:00Z",
    }


SCALARS: dict[str, Any] = {
    # booleans of YAML 1.1
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **{text: text for text in ("tRUE", "yeS", "oN", "oFF", "nO", "YeS")},
    **dict.fromkeys(("~", "null", "Null", "NULL"), None),
    "nULL": "nULL",
    # base 60 is text
    **{text: text for text in ("22:30:00", "52:54:00:12:34:56", "1:20", "12:30:45.5", "190:20:30", "-1:30")},
    # octal, hexadecimal and binary numbers
    "017": 15,
    "0o17": 15,
    "0O17": 15,
    "-017": -15,
    "+017": 15,
    "08": 8,
    "09.5": 9.5,
    "0o8": "0o8",
    "00": 0,
    "0x1F": 31,
    "0X1f": 31,
    "-0x1F": -31,
    "0b11": 3,
    "0B11": 3,
    "0b2": "0b2",
    "0b-1": -1,
    "0b+1": 1,
    "-0b-1": "-0b-1",
    "0B-1": "0B-1",
    "0x-1": "0x-1",
    "0xg": "0xg",
    # underscores
    "1_000": 1000,
    "1_": 1,
    "_1": "_1",
    "0_7": 7,
    "0x_1F": 31,
    "1_0.5_0": 10.5,
    # floats
    "1e9": 1000000000,
    "1E3": 1000,
    "1e+3": 1000,
    "1e-3": 0.001,
    "1.5e3": 1500,
    "1.0": 1,
    "1.": 1,
    ".5": 0.5,
    "+.5": 0.5,
    "-.5": -0.5,
    ".5e1": 5,
    ".5_0": 0.5,
    ".5_": ".5_",
    "._5": "._5",
    "1.5": 1.5,
    "1e21": 1e21,
    "1e400": "1e400",
    "1e": "1e",
    ".": ".",
    "+": "+",
    "0": 0,
    "-0": 0,
    "+1": 1,
    "12e03": 12000,
    # sizes
    "9223372036854775807": 2**63 - 1,
    "-9223372036854775808": -(2**63),
    "18446744073709551615": 18446744073709552000,
    "0xFFFFFFFFFFFFFFFF": 18446744073709552000,
    "18446744073709551616": 18446744073709552000,
    "9" * 400: "9" * 400,
    # text that other readers take for something else
    **{
        text: text
        for text in ("1Gi", "1.2.3", "v1", "2001-01-01", "2001-01-01T00:00:00Z", "1,000", "=", "0.1.2", "--1")
    },
}
"""plain scalars, and what kubectl reads"""


@pytest.mark.parametrize(("text", "value"), SCALARS.items())
def test_a_scalar_is_read_as_kubectl_reads_it(text: str, value: Any) -> None:
    found = load(f"[{text}]" if "," not in text else f"- {text}")[0]
    assert (found, type(found)) == (value, type(value))


HEAD = "apiVersion: v1\nkind: Example\nmetadata: {name: x}\n"
TEXTS: dict[str, tuple[str, dict[str, Any]]] = {
    "a tab after a colon": ("a:\tb\n", {"a": "b"}),
    "a tab at the end of a line": ("a: b\t\nc: [d]\t\n", {"a": "b", "c": ["d"]}),
    "a tab before a comment": ("a: b\t# c\n", {"a": "b"}),
    "a tab inside of text": ("a: b\tc \t d\n", {"a": "b\tc \t d"}),
    "a tab in text of two lines": ("a: b\t\n  c\n", {"a": "b c"}),
    "tabs in brackets": ("a: {\n\tb: c,\n\td:\te\n  }\n", {"a": {"b": "c", "d": "e"}}),
    "a tab at the end of the text": ("a: b\t", {"a": "b"}),
    "a tag of an application": ("a: !x b\nc: !x {d: 1}\ne: !x [1]\n", {"a": "b", "c": {"d": 1}, "e": [1]}),
    "a set": ("a: !!set {b, c}\n", {"a": {"b": None, "c": None}}),
    "a list of pairs": ("a: !!omap [b: 1]\n", {"a": [{"b": 1}]}),
    "bytes": ("a: !!binary aGVsbG8=\n", {"a": "hello"}),
    "a time": ("a: !!timestamp 2001-01-01\n", {"a": "2001-01-01"}),
    "two anchors of one name": ("a: &a 1\nb: &a 2\nc: *a\n", {"a": 1, "b": 2, "c": 2}),
    "an anchor of a key": ("&a b: 1\nc: *a\n", {"b": 1, "c": "b"}),
    "a merge before a key": ("a: &a {b: 1}\nc: {<<: *a, b: 2}\n", {"a": {"b": 1}, "c": {"b": 2}}),
    "a merge after a key": ("a: &a {b: 1}\nc: {b: 2, <<: *a}\n", {"a": {"b": 1}, "c": {"b": 1}}),
    "a merge of two": ("c: {<<: [{b: 1}, {b: 2, d: 3}]}\n", {"c": {"b": 1, "d": 3}}),
    "two merges": ("c:\n  <<: {b: 1}\n  <<: {b: 2}\n", {"c": {"b": 2}}),
    "a merge of a merge": ("c: {<<: {<<: {b: 1}, d: 2}, e: 3}\n", {"c": {"b": 1, "d": 2, "e": 3}}),
    "a key in quotes that looks like a merge": ('c: {"<<": {b: 1}}\n', {"c": {"<<": {"b": 1}}}),
    "a key twice": ("a: {b: 1, b: 2}\n", {"a": {"b": 2}}),
    "line breaks of Windows": ("a: |\r\n  b\r\n  c\r\nd: 1\r\n", {"a": "b\nc\n", "d": 1}),
    "a tab after |": ("a: |\t\n  b\nc: >-\t# d\n  e\n  f\n", {"a": "b\n", "c": "e f"}),
    "the end of a document": ("a: 1\n...\n", {"a": 1}),
    "text after the end of a document": ("a: 1\n...\nb: 2\n", {"a": 1}),
    "--- in text": ("a: |\n  b\n  ---\n  c\n", {"a": "b\n---\nc\n"}),
    "the tag of text": ("a: ! 5\nb: ! true\nc: !\nd: ! ~\n", {"a": "5", "b": "true", "c": "", "d": "~"}),
    "tags of objects and lists": (
        "a: !!seq {b: 1}\nc: !!str [1]\nd: ! {e: 1}\n",
        {"a": {"b": 1}, "c": [1], "d": {"e": 1}},
    ),
    "keys that are equal in Python": ("c: {1: a, true: b}\n", {"c": {"1": "a", "true": "b"}}),
    "an escaped apostrophe": ('a: "\\\'"\n', {"a": "'"}),
    "a character beyond 16 bits": ("a: \U0001f600\n", {"a": "\U0001f600"}),
}
"""what follows `HEAD`, and the fields that kubectl reads in it"""
JSON_HEAD = '"apiVersion": "v1", "kind": "Example", "metadata": {"name": "x"}'
JSON_TEXTS: dict[str, tuple[str, dict[str, Any]]] = {
    "indented by tabs": ('"a": {\n\t\t"b":\t1\n\t}\n', {"a": {"b": 1}}),
    "a pair of surrogates": ('"a": "\\ud83d\\ude00 \\/"', {"a": "\U0001f600 /"}),
    "numbers": (
        '"a": [1.0, 1e3, -0, 1.5, 1E-7, 9223372036854775807, 9223372036854775808]',
        {"a": [1, 1000, 0, 1.5, 1e-7, 2**63 - 1, 9223372036854776000]},
    ),
    "a key twice": ('"a": {"b": 1, "b": 2}', {"a": {"b": 2}}),
}


def documents() -> dict[str, tuple[str, dict[str, Any]]]:
    head = {"apiVersion": "v1", "kind": "Example", "metadata": {"name": "x"}}
    yaml = {name: (HEAD + text, {**head, **fields}) for name, (text, fields) in TEXTS.items()}
    json_texts = {
        f"JSON: {name}": ("{\n\t" + JSON_HEAD + ",\n\t" + text + "}\n", {**head, **fields})
        for name, (text, fields) in JSON_TEXTS.items()
    }
    return {
        **yaml,
        **json_texts,
        "a byte order mark": ("\ufeff" + HEAD, head),
        "a comment after ---": (HEAD + "---#a\n" + HEAD + "--- # b\n" + HEAD, head),
        "a byte order mark after ---": (HEAD + "---\n\ufeff" + HEAD, head),
        "two documents of JSON": ("{" + JSON_HEAD + "}\n{" + JSON_HEAD + "}", head),
    }


@pytest.mark.parametrize(("text", "value"), [pytest.param(*each, id=name) for name, each in documents().items()])
def test_a_text_is_read_as_kubectl_reads_it(text: str, value: Any) -> None:
    for found in load_all(text.encode()):
        assert json.dumps(found, sort_keys=True) == json.dumps(value, sort_keys=True)
    assert load_all(text) == load_all(text.encode()) != []


def test_kubectl_reads_the_texts_so(tmp_path: Path) -> None:
    for number, (text, _) in enumerate(documents().values()):
        (tmp_path / f"{number:03}.yaml").write_bytes(text.encode())
    command = ["kubectl", "label", "--local", f"--filename={tmp_path}", "--output=json", "read=by-kubectl"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert not told.returncode, told.stderr
    found = load_all(told.stdout)
    for each in found:
        del each["metadata"]["labels"]
    expected = [value for text, value in documents().values() for _ in range(text.count("Example"))]
    assert [json.dumps(each, sort_keys=True) for each in found] == [
        json.dumps(each, sort_keys=True) for each in expected
    ]


def test_two_documents_of_json_need_no_separator() -> None:
    assert load_all('{"a": 1}\n{"a": 2} {"a": 3}') == [{"a": 1}, {"a": 2}, {"a": 3}]


def test_a_quoted_scalar_is_text() -> None:
    assert load("""{a: "y", b: '017', c: "null", d: !!str 5, e: !!float 3}""") == {
        "a": "y",
        "b": "017",
        "c": "null",
        "d": "5",
        "e": 3,
    }


def test_keys_are_text() -> None:
    assert load("{y: 1, 017: 2, 1.5: 3, no: 4}") == {"true": 1, "15": 2, "1.5": 3, "false": 4}


def test_kubectl_reads_the_scalars_so(control_plane: Any) -> None:
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "scalars"}}
    lines = [f"  k{number}: {text}" for number, text in enumerate(SCALARS)]
    text = json.dumps(document)[1:-1].replace(', "', '\n"') + "\ndata:\n" + "\n".join(lines) + "\n  y: 1\n  017: 2\n"
    arguments = ["create", "-f", "-", "--dry-run=client", "--validate=false", "-o", "json"]
    command = ["kubectl", f"--kubeconfig={control_plane.kubeconfig}", *arguments]
    told = subprocess.run(command, input=text, capture_output=True, text=True, timeout=300, check=False)
    assert not told.returncode, told.stderr
    data = json.loads(told.stdout)["data"]
    assert [data.get(f"k{number}") for number in range(len(SCALARS))] == list(SCALARS.values())
    assert (data["true"], data["15"]) == (1, 2)


def test_aliases_and_merge_keys_are_expanded() -> None:
    assert load("a: &a {x: 1}\nb: {<<: *a, z: 2}\nc: *a") == {"a": {"x": 1}, "b": {"x": 1, "z": 2}, "c": {"x": 1}}


def test_empty_documents_are_left_out() -> None:
    assert load_all("---\n---\na: 1\n---\n") == [{"a": 1}]
    assert load("") is None
