"""Reads YAML as kubectl does: scalars are resolved by its rules, only values that JSON has are read, and no document
that expands to an endless or huge one.

kubectl reads YAML with sigs.k8s.io/yaml, whose rules (resolve.go of go-yaml v2) differ from those of PyYAML: `y` is
true, `22:30:00` and `52:54:00:12:34:56` are text, `1e9` and `0o17` are numbers, `08` is 8. It converts the result to
JSON, so that `1.0` becomes 1 and keys become text. A text that begins with `{` is a stream of JSON documents. Any other
text is split at the lines that begin with `---`, and only the first document of each part is read.
"""

import base64
import codecs
import json
import math
import re
from collections.abc import Hashable, Iterator
from decimal import Decimal
from typing import Any

import yaml

MAX_EXPANDED_VALUES = 200_000
"""limit on the values of a short file after its aliases are expanded; a few lines of nested aliases make millions"""
MAX_DIGITS = 400
"""A number with more digits is no float64, and kubectl reads it as text."""
_TAG = "tag:yaml.org,2002:"
_WORDS: dict[str, bool | float | None] = {
    **{word: True for text in ("y", "yes", "true", "on") for word in (text, text.capitalize(), text.upper())},
    **{word: False for text in ("n", "no", "false", "off") for word in (text, text.capitalize(), text.upper())},
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((sign + word for sign in ("", "+") for word in (".inf", ".Inf", ".INF")), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
_INTEGER = re.compile(r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))")
_BASES = (16, 2, 8, 10)
_SIGN_OF_BINARY = re.compile("^0b([-+])")
_UNDERSCORE = re.compile("(?<=[0-9])_(?=[0-9])")
_SEPARATOR = re.compile("^---(.*)$", re.MULTILINE)
_SPACE = re.compile(r"\s*")
_SURROGATE = re.compile("[\ud800-\udfff]")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")


class InvalidYAML(ValueError):
    """The text is not YAML, or has values that JSON does not have."""


def resolve(text: str) -> str | bool | int | float | None:
    """The value of a plain scalar."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] == ".":
        digits = _UNDERSCORE.sub("", text)
        number = float(digits) if _FLOAT.fullmatch(digits) else math.inf
        return text if math.isinf(number) else number
    if text[0] in "+-0123456789" and len(text) <= MAX_DIGITS:
        digits = text.replace("_", "")
        if (integer := _integer(digits)) is not None:
            return integer
        if _FLOAT.fullmatch(digits) and not math.isinf(number := float(digits)):
            return number
    return text


def _integer(digits: str) -> int | None:
    found = _INTEGER.fullmatch(_SIGN_OF_BINARY.sub(r"\g<1>0b", digits))
    if found is None:
        return None
    sign, *parts = found.groups()
    value = next(int(part, base) for part, base in zip(parts, _BASES, strict=True) if part is not None)
    value = -value if sign == "-" else value
    if -(2**63) <= value < 2**63:
        return value
    # Go reads it as an unsigned number, if it has no sign. kubectl writes that in JSON and reads it as a float64.
    return int(Decimal(repr(float(value)))) if not sign and value < 2**64 else None


class _Loader(yaml.SafeLoader):
    """Resolves scalars as kubectl does, and ignores tags of types that JSON does not have."""

    yaml_constructors = {  # noqa: RUF012 (PyYAML reads it from the class)
        tag: constructor
        for tag, constructor in yaml.SafeLoader.yaml_constructors.items()
        if tag is not None and tag.removeprefix(_TAG) in ("str", "seq", "map")
    }

    has_end = False
    """whether `...` ends the last document"""
    ESCAPE_REPLACEMENTS = {  # type: ignore[misc]  # noqa: RUF012 (PyYAML reads it from the class)
        "'": "'",
        **{escape: text for escape, text in yaml.SafeLoader.ESCAPE_REPLACEMENTS.items() if escape != "/"},
    }

    def scan_to_next_token(self) -> None:
        """Skips tabs too, wherever they are no indentation."""
        super().scan_to_next_token()
        while self.peek() == "\t" and (self.flow_level or not self.allow_simple_key):
            self.forward()
            super().scan_to_next_token()

    def scan_plain_spaces(self, indent: Any, start_mark: Any) -> Any:
        length = 0
        while self.peek(length) in " \t":
            length += 1
        blanks = self.prefix(length)
        if "\t" not in blanks:
            return super().scan_plain_spaces(indent, start_mark)
        self.forward(length)
        at_end = self.peek() in "\r\n\x85\u2028\u2029"
        return super().scan_plain_spaces(indent, start_mark) if at_end else [blanks]

    def scan_block_scalar(self, style: Any) -> Any:
        """Reads tabs after `|` and `>` as spaces."""
        length = 1
        while self.peek(length) in "+-0123456789 \t":
            length += 1
        if "\t" in (head := self.prefix(length)):
            self.buffer = head.replace("\t", " ") + self.buffer[self.pointer + length :]
            self.pointer = 0
        return super().scan_block_scalar(style)

    def scan_block_scalar_indentation(self) -> Any:
        found = super().scan_block_scalar_indentation()
        if self.peek() == "\t":
            message = "found a tab where spaces are the indentation"
            raise yaml.scanner.ScannerError(None, None, message, self.get_mark())
        return found

    def compose_document(self) -> Any:
        self.get_event()  # type: ignore[no-untyped-call]
        found = self.compose_node(None, None)
        self.has_end = self.get_event().explicit  # type: ignore[no-untyped-call]
        self.anchors = {}
        return found

    def compose_scalar_node(self, anchor: Any) -> Any:
        """Reads a scalar with the tag `!` as text."""
        event = self.peek_event()  # type: ignore[no-untyped-call]
        event.tag = _TAG + "str" if event.tag == "!" else event.tag
        return super().compose_scalar_node(anchor)

    def compose_sequence_node(self, anchor: Any) -> Any:
        """Ignores the tags of lists, as kubectl does."""
        self.peek_event().tag = None  # type: ignore[no-untyped-call]
        return super().compose_sequence_node(anchor)

    def compose_mapping_node(self, anchor: Any) -> Any:
        """Ignores the tags of objects, as kubectl does."""
        self.peek_event().tag = None  # type: ignore[no-untyped-call]
        return super().compose_mapping_node(anchor)

    def compose_node(self, parent: Any, index: Any) -> Any:
        """A later anchor of the same name replaces the earlier one."""
        if not self.check_event(yaml.AliasEvent):
            self.anchors.pop(self.peek_event().anchor, None)  # type: ignore[no-untyped-call]
        return super().compose_node(parent, index)

    def flatten_mapping(self, node: Any) -> None:
        """Merges the keys of `<<` at its place: a merge replaces the keys before it, as in kubectl."""
        pairs: dict[Hashable, Any] = {}
        for key, value in node.value:
            if key.tag != _TAG + "merge":
                pairs[(key.tag, key.value) if isinstance(key, yaml.ScalarNode) else id(key)] = (key, value)
                continue
            for each in reversed(value.value) if isinstance(value, yaml.SequenceNode) else (value,):
                if not isinstance(each, yaml.MappingNode):
                    raise yaml.constructor.ConstructorError(None, None, "<< needs a mapping", each.start_mark)
                self.flatten_mapping(each)
                pairs.update(((inner.tag, str(inner.value)), (inner, found)) for inner, found in each.value)
        node.value = list(pairs.values())

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        if kind is yaml.ScalarNode and implicit[0]:
            return _TAG + ("merge" if value == "<<" else _type_of(resolve(value)))
        return super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        self.flatten_mapping(node)
        return {self._key(key): self.construct_object(value, deep) for key, value in node.value}

    def _key(self, node: Any) -> str:
        """The key as text, because `1` and `true` are different keys in JSON and the same one in Python."""
        key = self.construct_object(node, deep=True)
        if isinstance(key, dict | list) or key is None:
            what = "null" if key is None else "an object or a list"
            raise yaml.constructor.ConstructorError(None, None, f"{what} is no key of a JSON object", node.start_mark)
        if isinstance(key, bool):
            return "true" if key else "false"
        return key if isinstance(key, str) else str(key)


def _construct_scalar(loader: Any, node: Any) -> Any:
    value, expected = resolve(text := loader.construct_scalar(node)), node.tag.removeprefix(_TAG)
    if _type_of(value) != expected and not (expected == "float" and _type_of(value) == "int"):
        raise yaml.constructor.ConstructorError(None, None, f"{text!r} is no {expected}", node.start_mark)
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        raise yaml.constructor.ConstructorError(None, None, f"JSON has no {text}", node.start_mark)
    return _in_json(value)


def _in_json(value: float) -> int | float:
    """Go writes the float64 2.0 as 2 in JSON, and large numbers by their shortest digits."""
    return int(Decimal(repr(value))) if value.is_integer() and abs(value) < 1e21 else value


def _construct_other(loader: Any, node: Any) -> Any:
    text = loader.construct_scalar(node)
    if node.tag != _TAG + "binary":
        return text
    return base64.b64decode("".join(text.splitlines()), validate=True).decode(errors="replace")


def _type_of(value: Any) -> str:
    names: tuple[tuple[type, str], ...] = ((bool, "bool"), (int, "int"), (float, "float"), (str, "str"))
    return next((name for kind, name in names if isinstance(value, kind)), "null")


for _name in ("null", "bool", "int", "float"):
    _Loader.add_constructor(_TAG + _name, _construct_scalar)
_Loader.add_constructor(None, _construct_other)


def load_all(text: str | bytes) -> list[Any]:
    """The documents of a text, without empty ones. Raises `InvalidYAML`."""
    try:
        text = _decoded(text)
        found = _json_documents(text) or [each for each in _yaml_documents(text) if each is not None]
        _check_size(found, max(len(text), MAX_EXPANDED_VALUES))
    except RecursionError:
        raise InvalidYAML("nested too deeply") from None
    except (yaml.YAMLError, ValueError) as error:  # a ValueError comes from the value of a number
        raise InvalidYAML(str(error)) from None
    return found


def _decoded(text: str | bytes) -> str:
    if isinstance(text, str):
        return text
    encoding = "utf-16" if text.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8"
    try:
        return text.decode(encoding)
    except UnicodeDecodeError as error:
        raise InvalidYAML(f"unacceptable character at byte {error.start}: no {error.encoding}") from None


def _yaml_documents(text: str) -> Iterator[Any]:
    """The first document of each part between the lines that begin with `---`."""
    start = lines = 0
    for separator in (*_SEPARATOR.finditer(text), None):
        part = text[start : separator.start() if separator else None]
        yield _first_document(part, lines)
        lines += part.count("\n")
        if separator is None:
            return
        if (rest := separator[1].strip()) and not rest.startswith("#"):
            raise InvalidYAML(f"line {lines + 1}: only a comment may follow ---, not {rest[:60]!r}")
        start = separator.end()


def _first_document(text: str, line: int) -> Any:
    """`line` is the number of lines before the text, for the places in messages."""
    loader = _Loader(text.removeprefix("\n").removeprefix("\ufeff"))
    loader.line = line + text.startswith("\n")
    try:
        found = loader.get_data() if loader.check_data() else None  # type: ignore[no-untyped-call]
        if not loader.has_end:
            loader.check_data()  # type: ignore[no-untyped-call]  # It raises if more text follows without `...`.
        return found
    finally:
        loader.dispose()


def _json_documents(text: str) -> list[Any]:
    """The documents of a text that is a stream of JSON; none if it is anything else."""
    decoder = json.JSONDecoder(parse_int=_json_number, parse_float=_json_number, parse_constant=_json_number)
    found, place = [], _skip_space(text, 0)
    try:
        while text.startswith("{", place):
            document, end = decoder.raw_decode(text, place)
            found.append(document)
            place = _skip_space(text, end)
    except ValueError:
        return []
    return found if place == len(text) else []


def _skip_space(text: str, place: int) -> int:
    """Where the next character stands that is no space. It copies nothing, because a stream may have many documents."""
    match = _SPACE.match(text, place)
    assert match is not None
    return match.end()


def _json_number(text: str) -> int | float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"JSON has no {text}")
    return int(text) if text.lstrip("-").isdigit() and -(2**63) <= int(text) < 2**63 else _in_json(value)


def load(text: str | bytes) -> Any:
    """The first document of a text; None without one. Raises `InvalidYAML`."""
    return next(iter(load_all(text)), None)


def _check_size(documents: list[Any], limit: int) -> None:
    for number, value in enumerate(_values(documents, frozenset())):
        if number >= limit:
            raise InvalidYAML(f"its aliases expand to more than {limit} values")
        if isinstance(value, str) and not value.isascii() and _SURROGATE.search(value):
            raise InvalidYAML("found invalid Unicode character escape code")


def _values(value: Any, above: frozenset[int]) -> Iterator[Any]:
    yield value
    if isinstance(value, dict):
        yield from value
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if id(value) in above:
        raise InvalidYAML("an alias contains itself")
    inside = above | {id(value)} if children else above
    for child in children:
        yield from _values(child, inside)
