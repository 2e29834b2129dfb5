"""Benchmarks. Each compares Poolhouse with the bare operation it consists of, in alternating rounds of one run.

`make bench` runs them all; `python -m bench.pool --help` shows the options of one.
"""
