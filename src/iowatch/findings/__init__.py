"""Findings: the changes of several series that belong to one event. Their sentences are in `iowatch.output.text`."""

from typing import TYPE_CHECKING

from iowatch.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from iowatch.findings.alarm_cost import AlarmCost, SeriesShares, assess_alarm_cost
    from iowatch.findings.case_parameters import (
        CASE_PARAMETERS,
        derive_parameters,
        format_parameter_value,
        short_case_names,
    )
    from iowatch.findings.csv_series import detect_csv
    from iowatch.findings.damaged import damaged_result_problems
    from iowatch.findings.detections import (
        HistoryExtent,
        detection_version,
        history_extent,
        load_covariates,
        load_detections,
    )
    from iowatch.findings.detectors import DETECTORS
    from iowatch.findings.deviations import SessionDeviations, SessionMark
    from iowatch.findings.document import finding_document, finding_from_document
    from iowatch.findings.experiments import FindingExperiment, find_experiments
    from iowatch.findings.finding import (
        SURE_STATES,
        AppliedDecision,
        CovariateDifference,
        DirectionGroup,
        EvidenceDifference,
        Finding,
        FindingMember,
        FindingState,
        FindingUpdate,
        LoadShare,
        MovedLayer,
        NodeOverSessions,
        Outlook,
        PatternKind,
        PerformanceDirection,
        ProbeResponse,
        Resolution,
        ResolutionKind,
        SlowNode,
        SlowTarget,
        SlowTargetOfRuns,
        are_sure,
        strongest_first,
    )
    from iowatch.findings.fitness import (
        AssessedSeries,
        BaselinePeriod,
        ChangedGroup,
        Expectation,
        ExpectationResult,
        ExpectedDirection,
        FitnessAssessment,
        FitnessComparison,
    )
    from iowatch.findings.layers import assess_newest_layer, layers_of
    from iowatch.findings.log_differences import LogDifferences, find_log_differences
    from iowatch.findings.losses import ChartYear, chart_past_year
    from iowatch.findings.review import (
        ReviewBasis,
        ReviewConflict,
        record_decision,
        record_decisions,
        record_event,
        review_bases,
    )
    from iowatch.findings.series import (
        MIN_OBSERVATIONS,
        Retest,
        combine_retests,
        find_retests,
        headline_series,
        headline_values,
        load_observations,
        monitored_series,
        retest_times,
    )
    from iowatch.findings.slow_from_start import SlowSeries, find_slow_from_start
    from iowatch.findings.slow_nodes import NodeRatio, slow_nodes_of_run
    from iowatch.findings.slow_parts import SlowParts, find_slow_parts
    from iowatch.findings.slow_targets import TargetRatio, slow_targets_of_run
    from iowatch.findings.stack_exchange import find_stack_exchange, require_steps
    from iowatch.findings.state import (
        OrphanedDecision,
        alarm_limits,
        detect_system,
        find_finding,
        load_findings,
        orphaned_decisions,
        outside_results,
        refresh_findings,
        update_findings,
    )
    from iowatch.findings.statistics_errors import reported_as
    from iowatch.findings.targets_in_logs import targets_of_run
    from iowatch.findings.trends import Trend, current_drifts, find_trends, series_with_slow_losses
else:
    __getattr__ = lazy_names(__name__)
