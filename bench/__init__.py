"""Benchmarks, as ratios: what we add to what has to be done anyway, both measured in the same run."""
