"""Prove delivery guarantees: kill jobs at each point of a batch and compare sink contents with the source's log.

It is outside the package, because injected bugs (`bugs.py`) must not be installed.

    events.py     the workload                     stores.py     sinks in separate stores, and their readers
    standin.py    Spark's part in a job            power.py      simulated power cuts
    oracle.py     what a reader may see under each delivery
    states.py     all crashes in one process, and the restart
    bugs.py       injected bugs, each of which must be found
    zygote.py     kills of forked processes        forked.py     the faults they suffer
    torn.py       torn checkpoints and repair      late_ends.py  delayed commits
    jobs.py       real jobs on Spark               killing.py    their lives and verdict
    campaign.py   many rounds, stored in benchmarks/results/delivery.json
"""
