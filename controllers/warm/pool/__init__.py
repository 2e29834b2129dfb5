"""Keeps each warm pool filled with healthy machines of its template, and lets none of them go that somebody took.

Begin with `plan`: what a pool does next, an ordinary function of a `State`. Each concern is a module of steps: `ripen`
and `heal` keep the labels true, `tiers` the standby, `fill`, `trim` and `roll` the number and the template; `leave`
says what becomes of machines when the pool goes.
"""
