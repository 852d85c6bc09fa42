"""Findings: the changes of several series that belong to one event."""

from typing import TYPE_CHECKING

from iowatch.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from iowatch.findings.card import card_facts, waiting_text
    from iowatch.findings.case_parameters import (
        CASE_PARAMETERS,
        derive_parameters,
        format_parameter_value,
        short_case_names,
    )
    from iowatch.findings.evidence import (
        BISECT_ANSWER,
        BISECT_ATTRIBUTE,
        bisected_member,
        find_bisection,
        find_log_differences,
        format_log_differences,
    )
    from iowatch.findings.finding import Finding, FindingMember, FindingState, are_sure, finding_from_json
    from iowatch.findings.grouping import current_trends, find_trends, format_trends
    from iowatch.findings.layers import assess_newest_layer, layers_of
    from iowatch.findings.losses import ChartYear, OutsideResult, chart_past_year
    from iowatch.findings.review import (
        EVENT_ACTION,
        REVIEW_ACTIONS,
        ReviewAction,
        ReviewBasis,
        record_decision,
        record_decisions,
        record_event,
        review_bases,
    )
    from iowatch.findings.series import (
        MIN_OBSERVATIONS,
        HistoryExtent,
        Retest,
        combine_retests,
        detect_csv,
        detection_version,
        find_retests,
        headline_series,
        history_extent,
        load_covariates,
        load_detections,
        load_observations,
        monitored_series,
        retest_times,
    )
    from iowatch.findings.state import (
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
    from iowatch.findings.text import (
        detection_cells,
        finding_day,
        finding_headline,
        format_change,
        format_day,
        format_decision,
        format_extent,
        format_factor,
        format_finding,
        format_finding_list,
        format_largest,
        format_moved_layer,
        format_no_findings,
        format_outlook,
        format_percent,
        format_resolution,
        format_session_loss,
        name_group,
        remaining_changes,
    )
else:
    __getattr__ = lazy_names(__name__)
