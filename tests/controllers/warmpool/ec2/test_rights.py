"""The least rights that docs/ec2.md gives are those that the calls need."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from controllers.warmpool.ec2 import client
from controllers.warmpool.ec2.tags import CLUSTER

Json = dict[str, Any]

PAGE = Path(__file__).resolve().parents[4] / "docs" / "ec2.md"
WITHOUT_A_CALL = {"iam:PassRole"}
"""RunInstances with an instance profile asks for it"""


def statements() -> list[Json]:
    (policy,) = re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    found: list[Json] = json.loads(policy)["Statement"]
    return found


def many(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def called() -> Iterator[str]:
    """Methods of boto3's client, `run_instances`, and what it pages through."""
    for node in ast.walk(ast.parse(Path(client.__file__).read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if ast.unparse(node.func.value) != "self._ec2":
                continue
            if node.func.attr == "get_paginator":
                yield ast.literal_eval(node.args[0])
            else:
                yield node.func.attr


def test_no_call_lacks_a_right_and_no_right_its_call() -> None:
    needed = {f"ec2:{''.join(word.title() for word in name.split('_'))}" for name in called()}
    assert len(needed) == 4
    granted = {action for each in statements() for action in many(each["Action"])}
    assert granted == needed | WITHOUT_A_CALL


def test_what_is_not_ours_can_be_looked_at_only() -> None:
    """Whatever an instance may suffer is bound to the tag of this cluster; a launch must bring it."""
    for each in statements():
        actions, on_instances = many(each["Action"]), any("instance/" in r for r in many(each["Resource"]))
        if not on_instances:
            assert each["Resource"] != "*" or actions == ["ec2:DescribeInstances"]
            continue
        (condition,) = each["Condition"].values()
        assert condition in (
            {f"aws:RequestTag/{CLUSTER}": "CLUSTER"},
            {f"aws:ResourceTag/{CLUSTER}": "CLUSTER"},
            {"ec2:CreateAction": "RunInstances"},
        )
