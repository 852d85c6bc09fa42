"""Errors, units, metrics, records and files that all packages use."""

from typing import TYPE_CHECKING

from iowatch.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from iowatch.core.clock import clock_offset_s, utc_now
    from iowatch.core.console import PlainTable, SafeConsole, make_table
    from iowatch.core.covariates import (
        AVERAGED_COVARIATES,
        COVARIATE_FACTS,
        COVARIATES,
        PROCESSOR_PRESSURE,
        SATURATED_PERCENT,
        SIDES,
        Covariate,
        Side,
        covariate_label,
        get_covariate,
        processor_saturation,
        recorded_covariates,
        run_covariates,
    )
    from iowatch.core.errors import InputError, IowatchError, MachineError, UsageError, suggest_name
    from iowatch.core.extras import PAGES, MissingExtraError, missing_extra_error
    from iowatch.core.files import (
        exclusive_file_lock,
        file_system_type,
        mount_types,
        special_file_kind,
        write_atomically,
    )
    from iowatch.core.hints import (
        HINTS,
        NO_HINTS,
        STRIPING_HINTS,
        describe_hints,
        fold_hints,
        format_hints,
        parse_hints,
        split_hints,
    )
    from iowatch.core.metrics import METRICS, BetterDirection, Metric, get_metric, headline_metrics
    from iowatch.core.model import (
        Case,
        Layer,
        LayerWork,
        Output,
        OutputStatus,
        Result,
        Scalar,
        Summary,
        canonical_json,
        parse_json,
        summarise_samples,
    )
    from iowatch.core.node_differences import NodeDifference, NodeGroup, find_node_differences
    from iowatch.core.node_pairs import (
        NODE_PAIRS_FACT,
        NodePairs,
        NodeWithSlowMessages,
        PairMessages,
        assess_node_pairs,
    )
    from iowatch.core.node_times import NODE_TIMES_FACT, NodeTimes, Quartiles, reduce_node_times
    from iowatch.core.runs import (
        ExpectedResult,
        MissingReason,
        ProblemKind,
        RunKey,
        RunProblem,
        UnplannedRun,
        missing_results,
        name_without_turn,
        session_of_day,
    )
    from iowatch.core.target_rates import TARGET_OPERATIONS, TARGET_RATES_FACT, TargetRates, rounded_rate
    from iowatch.core.text import (
        clean_text,
        escape_controls,
        escape_json_controls,
        escape_line,
        escape_texts,
        hide_passwords,
        name_pages,
    )
    from iowatch.core.units import (
        DAY_S,
        GIB,
        KIB,
        MIB,
        TIB,
        find_time_zone,
        format_count,
        format_day,
        format_local_time,
        format_number,
        format_size,
        format_time,
        local_day,
        parse_size,
        parse_time,
        start_of_day,
        to_metric_unit,
        to_mib_per_s,
        to_stored_unit,
        utc_offsets,
    )
else:
    __getattr__ = lazy_names(__name__)
