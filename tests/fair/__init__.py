"""Attacks of one tenant, and what another tenant notices.

Each attack is what an account with `edit` in a namespace of its own can do. The victim has a namespace of its own too:
it creates pools of three VMs and claims warm VMs, first while nothing else happens, then during the attack. The result
is the ratio of these times. The same controllers serve both, with leader election, on a stack with no other services.

    make fair                       all attacks
    make fair ATTACK=selectors      one of them
"""
