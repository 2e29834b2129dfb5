"""What controllers of sets do alike. A set has a number of VMs or VMIs: a pool, a replica set or a warm pool.

| Module | Content |
| --- | --- |
| `actions` | The base of the actions of a plan: their words, the events that they expect, their effect on a snapshot |
| `writes` | Carries out the actions of a plan, in the order of a table |
| `write_batches` | Sends the writes of one type in batches, and says what became of them |
| `events` | The events of success, failure and invalid specs |
| `records` | What a process remembers of each set, and what it learns from changes of VMs and VMIs |
| `simulation` | Consecutive plans without writes, and the HTTP endpoint that returns them |

A kind gives its views, its plan and its table of writes. This package decides nothing, and calls no code of a kind
apart from the functions that it is given.
"""
