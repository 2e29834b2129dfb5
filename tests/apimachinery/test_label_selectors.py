from __future__ import annotations

from typing import Any

import pytest

from poolhouse.api.apimachinery.label_selectors import from_string, matches, to_string


def expression(operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": "k", "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("selector", "labels", "expected"),
    [
        pytest.param(None, {"k": "v"}, False, id="an absent selector matches nothing"),
        pytest.param({}, {}, True, id="an empty selector matches everything"),
        pytest.param({"matchLabels": None, "matchExpressions": None}, {}, True, id="nulls are empty"),
        pytest.param({}, None, True, id="labels may be absent"),
        pytest.param({"matchLabels": {"k": "v"}}, {"k": "v", "x": "y"}, True, id="equal"),
        pytest.param({"matchLabels": {"k": "v"}}, {"k": "w"}, False, id="unequal"),
        pytest.param({"matchLabels": {"k": ""}}, {}, False, id="an empty value is not an absent label"),
        pytest.param(expression("In", "v", "w"), {"k": "w"}, True, id="in"),
        pytest.param(expression("In", "v"), {}, False, id="in needs the label"),
        pytest.param(expression("NotIn", "v"), {"k": "v"}, False, id="not in"),
        pytest.param(expression("NotIn", "v"), {}, True, id="an absent label is not in"),
        pytest.param(expression("Exists"), {"k": ""}, True, id="exists"),
        pytest.param(expression("DoesNotExist"), {"k": ""}, False, id="does not exist"),
        pytest.param(
            {"matchLabels": {"a": "b"}} | expression("Exists"), {"a": "b"}, False, id="all requirements must be met"
        ),
    ],
)
def test_a_selector_matches_labels(selector: Any, labels: Any, expected: bool) -> None:
    assert matches(selector, labels) is expected


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        ({}, ""),
        ({"matchLabels": {"b": "2", "a": "1"}}, "a=1,b=2"),
        (expression("In", "v", "w"), "k in (v,w)"),
        (expression("NotIn", "v"), "k notin (v)"),
        (expression("Exists"), "k"),
        (expression("DoesNotExist"), "!k"),
        ({"matchLabels": {"a": "1"}} | expression("Exists"), "a=1,k"),
    ],
)
def test_a_selector_as_text(selector: Any, text: str) -> None:
    assert to_string(selector) == text
    assert to_string(from_string(text)) == text
    assert all(
        matches(from_string(text), labels) == matches(selector, labels) for labels in ({}, {"k": "v"}, {"a": "1"})
    )


@pytest.mark.parametrize("text", ["k==v", "k!=v", "!k=v", "k in v", "k,", "k in (v", "k > 1"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="none of"):
        from_string(text)


def test_an_absent_selector_has_no_text() -> None:
    with pytest.raises(ValueError, match="nothing"):
        to_string(None)


@pytest.mark.parametrize("use", [lambda s: matches(s, {}), to_string])
def test_the_error_names_an_unknown_operator(use: Any) -> None:
    with pytest.raises(ValueError, match="Gt"):
        use(expression("Gt", "1"))
