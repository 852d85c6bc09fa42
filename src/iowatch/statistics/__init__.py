"""Statistics: arrays in, frozen records out."""

from iowatch.statistics.bisection import (
    Bisection,
    BisectionAnswer,
    BisectionSettings,
    BisectionTest,
    Culprit,
    CulpritKind,
    PairRequest,
)
from iowatch.statistics.comparison import Subgroup, compare_groups, compare_pairs, decide_pair_verdict, find_subgroups
from iowatch.statistics.control_chart import ChartReport, UnusualLoss, UsualRange, chart_losses
from iowatch.statistics.covariates import CovariateTable
from iowatch.statistics.detection import (
    DEFAULT_METHOD,
    METHODS,
    CollectDetections,
    detect_many,
    detection_pool,
    extend_detection,
    get_method,
)
from iowatch.statistics.errors import StatisticsError
from iowatch.statistics.explanation import EventReach, PossibleCause, RankedCause, explain_changes, rank_causes
from iowatch.statistics.gate import Gate, GateDecision, GateResult, GateSettings, GateState
from iowatch.statistics.interleaving import AbSchedule, AbTurn, SideName, StopRule
from iowatch.statistics.layers import LayerInference, LayerProbability, LayerSeries, TransferDirection, infer_layer
from iowatch.statistics.method import (
    Adjustment,
    ChangePoint,
    Detection,
    DetectionMethod,
    DetectorSettings,
    Drift,
    ObservedSeries,
    Transient,
)
from iowatch.statistics.pairs import (
    MAX_STATED_RANGE,
    ComparisonSettings,
    OverallComparison,
    Pair,
    PairComparison,
    ScalingPoint,
    Side,
    SideSamples,
    SideSummary,
    VerdictKind,
    format_percent,
)
from iowatch.statistics.panel import PanelEvent, PanelGroup, PanelMember, PanelReport, assess_panel, probability_beside
from iowatch.statistics.panel_table import NEWEST_SESSIONS, PanelSeries, session_starts
from iowatch.statistics.rules import (
    Explanation,
    Magnitude,
    Rule,
    RuleException,
    SeriesResponse,
    candidate_conditions,
    find_rule,
)
from iowatch.statistics.sequential import NoiseScale, SequentialCentre
from iowatch.statistics.shared_load import adjust_together, new_load
from iowatch.statistics.vocabulary import ParameterVocabulary
