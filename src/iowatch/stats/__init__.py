"""Statistics: arrays in, frozen records out."""

from iowatch.stats.bisection import (
    Bisection,
    BisectionAnswer,
    BisectionSettings,
    BisectionTest,
    Culprit,
    CulpritKind,
    PairRequest,
)
from iowatch.stats.comparison import Subgroup, compare_groups, compare_pairs, decide_pair_verdict, find_subgroups
from iowatch.stats.control_chart import ChartReport, UnusualLoss, UsualRange, chart_losses
from iowatch.stats.covariates import CovariateTable
from iowatch.stats.detection import (
    DEFAULT_METHOD,
    METHODS,
    CollectDetections,
    detect_many,
    detection_pool,
    extend_detection,
    get_method,
)
from iowatch.stats.explanation import PossibleCause, RankedCause, explain_changes, rank_causes
from iowatch.stats.gate import Gate, GateDecision, GateResult, GateSettings, GateState
from iowatch.stats.interleaving import AbSchedule, AbTurn, SideName, StopRule
from iowatch.stats.layers import LayerInference, LayerProbability, LayerSeries, TransferDirection, infer_layer
from iowatch.stats.method import (
    Adjustment,
    ChangePoint,
    Detection,
    DetectionMethod,
    DetectorSettings,
    Drift,
    ObservedSeries,
    Transient,
)
from iowatch.stats.pairs import (
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
from iowatch.stats.panel import PanelEvent, PanelGroup, PanelMember, PanelReport, assess_panel, probability_beside
from iowatch.stats.panel_table import NEWEST_SESSIONS, PanelSeries, session_starts
from iowatch.stats.rules import (
    Explanation,
    Magnitude,
    Rule,
    RuleException,
    SeriesResponse,
    candidate_conditions,
    derive_parameters,
    find_rule,
    format_parameter_value,
    prior_cost_bits,
    short_case_names,
)
from iowatch.stats.sequential import NoiseScale, SequentialCentre
from iowatch.stats.shared_load import adjust_together, new_load
