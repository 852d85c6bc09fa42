"""The history: schema, write, read, export, maintenance.

Other packages open a `History`; `iowatch.store.bulk` reads many results at once.
"""

from typing import TYPE_CHECKING

from iowatch.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from iowatch.core import ExpectedResult
    from iowatch.store.chain import ChainedSession, ChainGap
    from iowatch.store.engine import (
        NETWORK_FILE_SYSTEMS,
        ROLES_FILE,
        HistoryUnavailableError,
        NoHistoryError,
        NotPermittedError,
        database_url,
        engine_place,
    )
    from iowatch.store.facts import (
        NO_RUN_FACTS,
        NO_SESSION_FACTS,
        AbRunFacts,
        AllocationFacts,
        DarshanFacts,
        ExperimentFacts,
        FactDifference,
        MaintenanceFacts,
        NewestSessionReport,
        OutsideResult,
        RunFacts,
        SessionChoice,
        SessionFacts,
        UsedFileSystem,
    )
    from iowatch.store.history import History
    from iowatch.store.locks import ALL_SESSIONS
    from iowatch.store.records import (
        Artefact,
        DetectionRow,
        FindingRow,
        ResultFilter,
        ResultRow,
        RunRecord,
        RunRow,
        RunSessions,
        RunWithFact,
        SeriesExtent,
        SeriesFilter,
        SeriesPoints,
        SeriesRow,
        SeriesSamples,
        SessionRecord,
        SessionRow,
        SessionStatus,
        StackRecord,
        StackUse,
        fold_node_names,
    )
else:
    __getattr__ = lazy_names(__name__)
