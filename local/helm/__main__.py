"""Prepares Helm during `make setup` (`python -m local.helm`), so that no test waits for a download or a build."""

import sys

from local.components import StackError
from local.helm import find_helm

try:
    print(f"helm: {find_helm(lambda text: print(text, flush=True))}")
except StackError as error:
    sys.exit(str(error))
