"""The controllers, with one package for each kind.

All packages have the same modules. `observe` reads the stores and builds a snapshot. `plan(snapshot, now)` is a pure
function that returns frozen actions with their reasons. Only `apply` writes to the API. `controller` enqueues keys and
runs these functions. `main` starts all packages. To understand a controller's decisions, read its `plan` and the tests
of the plan.
"""
