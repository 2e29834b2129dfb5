"""The behaviours of KubeVirt that Poolhouse relies on, as steps that a test performs with one VM.

The table was written from KubeVirt's source and checked on a real KubeVirt 1.9. `poolhouse conformance` performs it on
any cluster. The tests perform it on the engine of the embedded stack, so that the engine behaves like KubeVirt.
"""

from poolhouse.api.kubevirt.behaviours.admission import ADMISSION
from poolhouse.api.kubevirt.behaviours.drains import DRAINS
from poolhouse.api.kubevirt.behaviours.lifecycle import LIFECYCLE
from poolhouse.api.kubevirt.behaviours.live_updates import LIVE_UPDATES
from poolhouse.api.kubevirt.behaviours.snapshots import SNAPSHOTS
from poolhouse.api.kubevirt.behaviours.steps import Behaviour

BEHAVIOURS: tuple[Behaviour, ...] = (
    *ADMISSION,
    *LIFECYCLE,
    *LIVE_UPDATES,
    *SNAPSHOTS,
    *DRAINS,
)
