"""Estimate rates, means and quantiles of all traffic from the turns in the store."""
