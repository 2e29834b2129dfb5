"""Seeded histories: the real controllers, an API server in memory and the simulated engine in virtual time.

A history lasts an hour of virtual time and less than a second of real time. Users, crashes, faults of the API server,
lost nodes and clock jumps follow from a seed, so that the seed of a failed history reproduces the failure. Begin with
`world.py`, which runs a history, and `api_server.py`, whose rules `test_api_server.py` compares with a real API server.
"""
