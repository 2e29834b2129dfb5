"""The tests of the distribution `poolhouse-agent`, whose package is in the folder `agent`."""

import sys
from pathlib import Path

from poolhouse.generate import distributions

distributions.write()
AGENT = Path(__file__).resolve().parents[2] / "agent"
sys.path.insert(0, str(AGENT))
