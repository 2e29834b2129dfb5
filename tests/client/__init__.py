"""The tests of the distribution `poolhouse-client`, whose package is in the folder `client`."""

import sys
from pathlib import Path

from poolhouse.generate import distributions

distributions.write()
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "client"))
