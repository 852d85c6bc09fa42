"""Logistic models of the evidence of many series (`iowatch.statistics.panel`): features in, probabilities out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from iowatch.statistics.logistic import expit
from iowatch.statistics.panel_table import NEWEST_SESSIONS


@dataclass(frozen=True, slots=True)
class ReportLimits:
    """Least probability of being real of a new event that is reported, by the direction of its change."""

    down: float
    up: float


@dataclass(frozen=True, slots=True)
class PanelModel:
    """Logistic models of the candidates of at most `sessions` sessions.

    Weights are by the name of a feature; "" is the constant.

    Attributes:
        sessions: most sessions since the event, its first one included.
        report: from which probability on a new event is reported. Lower for the first session, because its morning is
            the one that counts: of losses just below (.15 to .25) 59 of 296 were real, of gains from .30 to .50 31 of
            93 (300 panels each of Edison, Cori and Mira). Higher for gains: those that are not seen at once were real
            in 16 of 38 cases after two and three sessions and in 2 of 22 later (100 panels each and the 100 of the
            tests).
        real: log odds that a candidate is more than the usual bad sessions of the system.
        lasting: log odds that a real one lasts.
    """

    sessions: int
    report: ReportLimits
    real: Mapping[str, float]
    lasting: Mapping[str, float]


# Fitted to planted events of Edison; what lasts from the fourth session on to those of Edison, Cori and Mira
# (docs/weights.md). These, and the weights of `real`, are of commit d5431a76: fitted anew, they are not better.
MODELS = (
    PanelModel(
        sessions=1,
        report=ReportLimits(down=0.25, up=0.45),
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
        sessions=3,
        report=ReportLimits(down=0.38, up=0.50),
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
        sessions=NEWEST_SESSIONS,
        report=ReportLimits(down=0.45, up=0.60),
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
    for model in MODELS:
        if sessions <= model.sessions:
            return model
    return MODELS[-1]


def log_odds(weights: Mapping[str, float], features: Mapping[str, float]) -> float:
    """Log odds by a logistic model.

    Args:
        weights: by name of a feature; "" is the constant.
        features: by name; those without a weight do not count.
    """
    weighted = 0.0
    for name, weight in weights.items():
        if name:
            weighted += weight * features[name]
    return weights[""] + weighted


def probability(weights: Mapping[str, float], features: Mapping[str, float], added: float = 0.0) -> float:
    """Probability by a logistic model.

    Args:
        weights, features: as in `log_odds`.
        added: log odds that are added to those of the model.
    """
    return expit(log_odds(weights, features) + added)
