"""VMs that were stored with hardware undecided, as nobody was there to decide it: completed before they run.

Begin with `registration`, which says whose hardware is ours to decide, and `plan`. A VM is completed while no instance
of it exists, or while its instance is going: KubeVirt makes the next one from what is written then. A VM that runs is
left alone, because changing its hardware would only say that it must be restarted. On a cluster KubeVirt may start a VM
at once; then it is completed at its next stop.
"""
