"""The agent in a warm VM: it runs the containers of a Pod in the VM, and reports their state to Poolhouse.

Begin with `plan.py`, which decides what happens next with each container, and `runner.py`, which does it. `shim.py` is
the parent of each container's process: it survives the agent, writes the container's log and its exit code. `server.py`
answers the calls of Poolhouse. `protocol.py` and `protobuf.py` are copies of Poolhouse's modules.
"""
