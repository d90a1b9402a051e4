"""Prove delivery guarantees: kill jobs at each point of a batch and compare sink contents with the source's log.

It stands beside the package, since bugs made on purpose (`bugs.py`) have no place in what is installed.

    events.py     the workload            stores.py     sinks in places of their own, and their readers
    standin.py    Spark's part in a job, without Spark            power.py      what a power cut leaves of files
    oracle.py     what each delivery allows a reader to see
    states.py     every crash, one after the other, in one process, and then the restart
    bugs.py       25 and more mistakes, each of which must be found, or the proof proves nothing
    zygote.py     real kills of processes without Spark            forked.py     what is done to them
    torn.py       checkpoints that a kill left torn, and repair    late_ends.py  commits that a service hears of late
    jobs.py       real jobs on Spark                               killing.py    their lives, and the verdict
    campaign.py   many of them, kept in benchmarks/results/delivery.json
"""
