"""Fuzzing of what strangers can send to Poolhouse: `make fuzz`, or `python -m tests.fuzz --help`.

    __main__.py   the command: bounds by time or number, seeds, figures
    campaign.py   runs inputs against targets, with a deadline of processor time, and keeps those that reach new lines
    targets.py    what is attacked: admission, raw bodies, hardware records, the libvirt-shaped VM, plans, commands
    documents.py  valid and nearly valid documents, from the fields of KubeVirt and of our kinds
    mutations.py  changes of any document and of any bytes
    oracles.py    what holds for every answer
    services.py   the webhook and the defaulter in this process, with real libvirt workers
    corpus/       one file for each target: inputs that reached new lines, with which each run begins

An input is JSON, so that a failure is a file that a person can read and that `python -m tests.fuzz --replay FILE`
repeats.
"""
