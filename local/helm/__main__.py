"""`python -m local.helm`: has it there before a test waits for it."""

from __future__ import annotations

import sys

from local.components import StackError
from local.helm import find_helm

try:
    print(f"helm: {find_helm(lambda text: print(text, flush=True))}")
except StackError as broken:
    sys.exit(str(broken))
