"""Writes a template in another spelling of the same meaning."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from fractions import Fraction
from random import Random
from typing import Any

from poolhouse.api.apimachinery.quantity import to_fraction
from poolhouse.api.kubevirt import meaning
from poolhouse.api.kubevirt.fields import VM_SPEC, Field

Defaults = Mapping[tuple[str, str], Any]


def respell(value: Any, type_name: str, random: Random) -> Any:
    """A random spelling of an object: quantities in other units, absent fields written as null, empty or default
    values, `running` in place of `runStrategy`."""
    found = copy.deepcopy(value)
    _respell(found, type_name, meaning._DEFAULTS, random)
    assert meaning.mean_the_same(value, found, type_name)
    return found


def _respell(value: Any, type_name: str, defaults: Defaults, random: Random) -> None:
    if isinstance(value, list):
        for each in value:
            _respell(each, type_name, defaults, random)
        return
    if not isinstance(value, dict):
        return
    if type_name == VM_SPEC and meaning._takes_defaults(value):
        defaults = {**defaults, **meaning._DEFAULTS_WITHOUT_PREFERENCE}
    fields = meaning.fields_of(type_name)
    for name, field in fields.items():
        if value.get(name) is not None:
            if field.type == "Quantity":
                value[name] = _quantity(value[name], random)
            elif field.type == "Quantities":
                value[name] = {key: _quantity(each, random) for key, each in value[name].items()}
            else:
                _respell(value[name], field.type, defaults, random)
        elif name not in meaning._IGNORED.get(type_name, ()) and random.random() < 0.2:
            value[name] = random.choice([None, *_spellings_of_absence(type_name, name, field, defaults)])
    if type_name == VM_SPEC:
        _power(value, random)


def _quantity(value: Any, random: Random) -> Any:
    number = to_fraction(value)
    assert number is not None
    milli = f"{int(number * 1000)}m"
    spellings = [value, milli] if (number * 1000).denominator == 1 else [value]
    if number.denominator == 1:
        spellings += [str(number), int(number)]
    for unit, factor in (("Ki", 2**10), ("Mi", 2**20), ("Gi", 2**30), ("k", 1000)):
        if (Fraction(number) / factor).denominator == 1:
            spellings.append(f"{int(number / factor)}{unit}")
    return random.choice(spellings)


def _spellings_of_absence(owner: str, name: str, field: Field, defaults: Defaults) -> Iterator[Any]:
    if (owner, name) in defaults:
        yield defaults[owner, name]
    if field.type in meaning._WITHOUT_EFFECT or field.type in ("Map", "Quantities"):
        yield {}


def _power(value: dict[str, Any], random: Random) -> None:
    strategies = {"Always": True, "Halted": False}
    running, strategy = value.pop("running", None), value.pop("runStrategy", None)
    wanted = strategy or (None if running is None else "Always" if running else "Halted")
    if wanted in strategies and random.random() < 0.5:
        value["running"] = strategies[wanted]
    elif wanted is not None:
        value["runStrategy"] = wanted
