"""Explores the planners of pools and claims: all states within small bounds, instead of samples of them.

The histories in `tests.histories` run the real controllers and sample long runs. Here the plans are taken as what they
are, pure functions, and every order of their writes, of KubeVirt's part and of faults is followed. Begin with
`search.py`, which says what is shown; `pools.py` and `claims.py` have the moves of one kind each.
"""
