"""From an observation to a stored record: everything that runs outside the agent's threads.

Bounded queue, snapshot of mutable values, background worker, case processor, record writer,
counters, sinks, spool and forwarder.
"""
