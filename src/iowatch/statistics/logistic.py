"""Probabilities and log odds. The functions of scipy.special would add a fifth to the start of a command."""

from __future__ import annotations

import math

# The exponential of more than 709 overflows; the probability at these odds is 1e-304.
_LEAST_LOG_ODDS = -700


def logit(p: float) -> float:
    """Log odds of a probability above 0 and below 1."""
    return math.log(p / (1 - p))


def expit(log_odds: float) -> float:
    """Probability of log odds."""
    if log_odds <= _LEAST_LOG_ODDS:
        return 0.0
    return 1 / (1 + math.exp(-log_odds))
