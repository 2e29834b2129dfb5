"""`python -m poolhouse.stack.helm` prepares Helm during `make setup`: no test waits for a download or a build."""

import sys

from poolhouse.stack.components import StackError
from poolhouse.stack.helm import find_helm

try:
    print(f"helm: {find_helm(lambda text: print(text, flush=True))}")
except StackError as error:
    sys.exit(str(error))
