"""From an observation to a stored record: everything that runs outside the agent's threads.

The pipeline of a recorder: bounded queue, snapshot of mutable values, background worker, case
processor, record writer, counters, sinks, spool and forwarder.
"""
