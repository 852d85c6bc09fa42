"""Statistics: arrays in, frozen records out. A library of its own: numpy and scipy only, nothing of iowatch.

Here is what several packages use. All else is imported from the module of its subject, for example
`iowatch.experiments.bisect.search`.
"""

from iowatch.statistics.comparison import compare_groups, compare_pairs, find_subgroups
from iowatch.statistics.covariates import CovariateTable
from iowatch.statistics.detection import METHODS, detect_many
from iowatch.statistics.errors import StatisticsError
from iowatch.statistics.explanation import PossibleCause, explain_changes, rank_causes
from iowatch.statistics.method import DEFAULT_METHOD, ChangePoint, Detection, Detector, DetectorSettings, ObservedSeries
from iowatch.statistics.pairs import (
    ComparisonSettings,
    OverallComparison,
    Pair,
    PairComparison,
    Side,
    SideSamples,
    SideSummary,
    format_percent,
)
from iowatch.statistics.rules import Explanation, SeriesResponse
from iowatch.statistics.vocabulary import ParameterVocabulary
