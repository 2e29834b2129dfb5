"""VirtualMachineInstanceReplicaSet: a number of VMIs of one template, each of which can be replaced.

Begin with `plan`. The controller owner reference (name and UID) makes a VMI a member. A VMI without a controller that
the selector matches is adopted; a member whose labels stop matching is released, and goes on running.

Where KubeVirt has installed its own resource of this name, the controller does nothing: see `build`.
"""
