"""Benchmarks. A benchmark compares Poolhouse with a bare client that does the same operation, in alternating rounds.

`make bench` runs all benchmarks, and `make bench BENCH=pool` one; `python -m tests.bench --help` shows more.
"""
