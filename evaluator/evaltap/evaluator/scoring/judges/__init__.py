"""The layers around a judge's client: cache, retries, limits, budget, prices."""
