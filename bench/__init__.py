"""Benchmarks. A benchmark compares Poolhouse with a bare client that does the same operation, in alternating rounds.

`make bench` runs all benchmarks. `python -m bench.pool --help` shows the options of the benchmark `pool`.
"""
