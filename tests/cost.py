"""Counts bytecode instructions, because time depends on the machine."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def instructions(function: Callable[[], Any]) -> int:
    """The number of bytecode instructions that a call executes."""
    executed = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal executed
        frame.f_trace = trace  # Python 3.13 traces opcodes only in frames that have a function of theirs
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        executed += event == "opcode"
        return trace

    before = sys.gettrace()
    # Python 3.12 traces opcodes if a frame asked for them before `settrace`, and so misses those of the first call.
    sys._getframe().f_trace_opcodes = True
    # A garbage collection in between would run finalizers and Hypothesis's callback, whose instructions count too.
    gc.collect()
    gc.disable()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
        gc.enable()
    return executed
