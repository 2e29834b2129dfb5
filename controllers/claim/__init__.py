"""Giving machines away: each claim gets exactly one, and nobody gets another's.

Begin with `plan`, which says the next step of a claim from what is known of it; `actions` are the steps. `choose` says
which pool and what kind of machine, `shelf` which one of them, `line` whose turn it is. `apply` makes the two
compare-and-swaps: first the machine, which is what several claims may want, then the claim. `controller` goes on until
a step has to wait for the cluster.

What makes it safe is in the objects, not in here: a machine's claim is a label that is written once, with its
resourceVersion; a claim's machine is written once, with its. Whoever loses either sees it and steps back. Before a
machine is taken, those that the claim may have already are looked for, with a live call where our memory of the claim
has a gap.
"""
