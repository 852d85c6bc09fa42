"""Logistic models of the evidence of many series (`iowatch.statistics.panel`): features in, probabilities out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PanelModel:
    """Weights of the features of a candidate of at most `sessions` sessions, by name; "" is the constant.

    Attributes:
        report: least probability of being real of a new event that is reported, by direction (down, up). Lower for
            the first session, because its morning is the one that counts: of losses just below (.15 to .25) 59 of 296
            were real, of gains from .30 to .50 31 of 93 (300 panels each of Edison, Cori and Mira). Higher for gains:
            those that are not seen at once were real in 16 of 38 cases after two and three sessions and in 2 of 22
            later (100 panels each and the 100 of the tests).
        real: log odds that it is more than the usual bad sessions of the system.
        lasting: log odds that a real one lasts.
    """

    sessions: int
    report: tuple[float, float]
    real: Mapping[str, float]
    lasting: Mapping[str, float]


# Fitted to planted events of Edison; what lasts from the fourth session on to those of Edison, Cori and Mira
# (docs/weights.md). These, and the weights of `real`, are of commit d5431a76: fitted anew, they are not better.
MODELS = (
    PanelModel(
        1,
        (0.25, 0.45),
        real={
            "": -3.292,
            "distance above past": 0.188,
            "up": 1.974,
            "evidence per series": 0.961,
            "opposite": 3.09,
            "others far off": -1.501,
            "size": 0.025,
        },
        lasting={"": 0.392, "opposite, limited": 3.432},
    ),
    PanelModel(
        3,
        (0.38, 0.50),
        real={
            "": -2.994,
            "distance above past": 0.144,
            "margin": 0.13,
            "series": -1.181,
            "session before": -0.839,
            "evidence above past": 0.069,
            "opposite": 0.761,
            "others far off": -0.313,
            "evidence": 1.483,
            "sessions": -1.211,
            "up": 0.844,
        },
        lasting={"": -0.638, "opposite, limited": 3.097, "sessions": 0.423, "newest session": 0.99},
    ),
    PanelModel(
        10,
        (0.45, 0.60),
        real={
            "": -4.109,
            "evidence per series": 0.5,
            "evidence after a short past": -0.12,
            "session before": -1.172,
            "evidence above past": -0.101,
            "size": 0.476,
            "margin": -0.138,
            "share": 3.969,
            "opposite": 0.83,
            "sessions": -0.314,
            "newest session": -0.068,
            "up": 0.917,
        },
        lasting={
            "": -1.318,
            "whole evidence per series": 0.602,
            "distance": -0.263,
            "opposite, limited": 1.462,
            "newest session": 1.868,
        },
    ),
)


def model_of(sessions: int) -> PanelModel:
    """The model of a candidate of that many sessions."""
    return next((model for model in MODELS if sessions <= model.sessions), MODELS[-1])


# Those of scipy.special need a fifth of the start of a command.
def logit(p: float) -> float:
    """Log odds of a probability above 0 and below 1."""
    return math.log(p / (1 - p))


def expit(log_odds: float) -> float:
    """Probability of log odds."""
    return 1 / (1 + math.exp(-log_odds))


def log_odds(weights: Mapping[str, float], features: Mapping[str, float]) -> float:
    """Log odds by a logistic model."""
    return weights[""] + sum(weight * features[name] for name, weight in weights.items() if name)


def probability(weights: Mapping[str, float], features: Mapping[str, float], added: float = 0.0) -> float:
    """Probability by a logistic model, with additional log odds."""
    return expit(log_odds(weights, features) + added)
