"""All that the checks inside ReFrame do: the order of a session, the lines of a job, validation, the spool, extensions.

    session ──RunOrder──> base (in ReFrame) ──lines──> job ──files──> outputs ──SpooledCase──> session

The base class of the checks is `iowatch.checks.base`, the only module here that depends on ReFrame.
"""

from typing import TYPE_CHECKING

from iowatch.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from iowatch.checks.extension import EXTENSIONS, CheckExtension, ExtensionSettings
    from iowatch.checks.order import (
        AB_RUN_PARAMETER,
        ORDER_VARIABLE,
        OVERHEAD_PAIRS,
        REPEATED_PARAMETER,
        REPEATED_SIDE,
        RETEST,
        UNMONITORED_PARAMETERS,
        CheckTurn,
        ExtraWork,
        OrderedFileSystem,
        OrderedRun,
        RunOrder,
        ordered_runs,
        read_order,
        turn_run_name,
        verifying_options,
        write_order,
    )
    from iowatch.checks.run import CheckedRun, JobScript
    from iowatch.checks.spool import (
        QuarantinedCase,
        SpooledCase,
        finished_case_directories,
        quarantine,
        quarantined_cases,
        read_spooled_case,
        remove_spooled_case,
        spool_case,
        spooled_output,
        write_json_atomically,
    )
    from iowatch.checks.targets import no_targets_reason
    from iowatch.checks.validation import validate_output
else:
    __getattr__ = lazy_names(__name__)
