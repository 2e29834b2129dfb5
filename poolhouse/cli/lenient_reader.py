"""Reads values of documents that no schema has checked, and collects what is wrong with them."""

import re
from dataclasses import dataclass, field
from typing import Any

from poolhouse.api.apimachinery.problem import Problem
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.validation import quoted


@dataclass
class Reader:
    """Reads fields and collects problems and remarks."""

    problems: list[Problem] = field(default_factory=list)
    remarks: list[Problem] = field(default_factory=list)

    def problem(self, path: str, message: str) -> None:
        self.problems.append(Problem(path, message))

    def remark(self, path: str, message: str) -> None:
        self.remarks.append(Problem(path, message))

    def object(self, value: Any, path: str) -> Json:
        if value is None or isinstance(value, dict):
            return value or {}
        self.problem(path, f"must be an object, not {quoted(value)}")
        return {}

    def text(self, value: Any, path: str) -> str:
        if value is None or isinstance(value, str):
            return (value or "").strip()
        self.problem(path, f"must be text, not {quoted(value)}")
        return ""

    def texts(self, value: Any, path: str) -> tuple[str, ...]:
        if isinstance(value, str):
            self.remark(path, f"should be a list; it is read as a list of {quoted(value)}")
            value = [value]
        if value is not None and not isinstance(value, list):
            self.problem(path, f"must be a list of texts, not {quoted(value)}")
            return ()
        found = [self.text(each, f"{path}[{index}]") for index, each in enumerate(value or ())]
        for index, each in enumerate(found):
            if not each:
                self.problem(f"{path}[{index}]", "is empty")
            elif each in found[:index]:
                self.problem(f"{path}[{index}]", f"{quoted(each)} is there already")
        return tuple(found)

    def number(self, value: Any, path: str) -> int | None:
        """Returns a whole number of at least 0. Accepts text too, as in the design document."""
        text = value.strip() if isinstance(value, str) else value
        if isinstance(text, str) and re.fullmatch(r"[0-9]{1,9}", text):
            return int(text)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31:
            return value
        if value is not None:
            self.problem(path, f"must be a whole number of at least 0, not {quoted(value)}")
        return None

    def boolean(self, value: Any, path: str) -> bool:
        if isinstance(value, str) and value.strip().lower() in ("true", "false"):
            self.remark(path, f"should be {value.strip().lower()} without quotes")
            return value.strip().lower() == "true"
        if value is not None and not isinstance(value, bool):
            self.problem(path, f"must be true or false, not {quoted(value)}")
        return value is True
