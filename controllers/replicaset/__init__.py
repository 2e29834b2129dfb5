"""VirtualMachineInstanceReplicaSet: so many VirtualMachineInstances of one template, none of which is missed.

Begin with `plan`. An instance belongs to a set by its controller owner reference (name and UID). Labels decide who is
taken in and who is let go: an instance without a controller that the selector matches is adopted, one of the set's
whose labels were changed is released and left to whoever changed them.

Where KubeVirt has installed its own resource of this name, the controller does nothing: see `build`.
"""
