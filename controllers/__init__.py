"""What keeps the cluster as its objects say, one package a kind.

Every package has the same shape. `observe` reads the stores and makes a State; `plan(state, now)` is an ordinary
function that returns frozen actions with their reasons; `apply` is the only code that writes. `controller` joins the
three and enqueues keys; `main` wires all packages. To see what a controller decides, read its `plan` and the table
that tests it.
"""
