"""From an observation to a record that is stored: the threads that run beside the agent.

Bounded queue, snapshot of mutable values, background worker, case processor, record writer, counters,
sinks, spool and forwarder.
"""
