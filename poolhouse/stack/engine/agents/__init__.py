"""How controllers outside of the guests' network reach the agents in guests, and the agents that simulation plays.

`proxy` opens connections to addresses of guests. `server` plays the agent of each simulated guest, and `application`
the programs that it runs. `addresses` gives each simulated guest an address of its own.
"""
