"""Experiments: run an agent on the cases of a set, record it, score it like any other traffic.

The agent runs in a process of its own (`worker`), which records to a log; the process of the experiment
(`loop`) lands and scores what arrives there.
"""
