"""pass@k and pass^k: chances that some, or all, of several tries pass."""

from evaltap.evaluator.analysis.stats.rate import pass_at_k, pass_hat_k, pass_hat_k_unbiased

__all__ = ["pass_at_k", "pass_hat_k", "pass_hat_k_unbiased"]
