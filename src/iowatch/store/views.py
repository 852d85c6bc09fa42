"""Views of a PostgreSQL history for other programs (Grafana, psql, R): stable names, units in the columns, UTC.

They are part of the schema: a change of one is a migration. docs/operations.md lists them.
"""

from __future__ import annotations

VIEWS = (
    """CREATE VIEW iowatch_series AS
SELECT series.id AS series_id, system.name AS system, series.partition, series.stack,
    case_definition.benchmark, case_definition.key AS case_key, series.metric,
    case_definition.parameters ->> 'operation' AS operation, case_definition.parameters ->> 'api' AS api,
    case_definition.parameters ->> 'file' AS file, (case_definition.parameters ->> 'nodes')::int AS nodes,
    (case_definition.parameters ->> 'ranks')::int AS ranks, case_definition.parameters,
    concat_ws(' ', case_definition.benchmark, case_definition.parameters ->> 'operation',
        case_definition.parameters ->> 'api', case_definition.parameters ->> 'file',
        (case_definition.parameters ->> 'ranks') || ' ranks', left(case_definition.key, 6)) AS label
FROM series JOIN system ON system.id = series.system_id
JOIN case_definition ON case_definition.id = series.case_id""",
    """CREATE VIEW iowatch_results AS
SELECT result.series_id, to_timestamp(result.time) AS time, result.time AS epoch_s, result.run_id,
    result.max, result.median, result.min, result.mean, result.n
FROM result""",
    """CREATE VIEW iowatch_sessions AS
SELECT session.id AS session_id, session.uuid, system.name AS system, session.suite, session.origin,
    session.status, to_timestamp(session.started_at) AS time, session.started_at AS epoch_s,
    session.ended_at - session.started_at AS wall_s,
    coalesce(json_array_length(expected_set.items), 0) AS expected,
    (SELECT count(*) FROM run WHERE run.session_id = session.id) AS runs,
    (SELECT count(*) FROM run WHERE run.session_id = session.id AND run.status <> 'ok') AS failed_runs
FROM session JOIN system ON system.id = session.system_id
LEFT JOIN expected ON expected.session_id = session.id
LEFT JOIN expected_set ON expected_set.id = expected.set_id""",
    """CREATE VIEW iowatch_findings AS
SELECT finding.id AS finding_id, system.name AS system, finding.state, finding.document ->> 'line' AS line,
    to_timestamp((finding.document ->> 'first_after')::bigint) AS time,
    (finding.document ->> 'first_after')::bigint AS epoch_s,
    to_timestamp(finding.first_seen_at) AS first_seen, to_timestamp(finding.updated_at) AS updated,
    json_array_length(finding.document -> 'members') AS members
FROM finding JOIN system ON system.id = finding.system_id""",
)
NAMES = tuple(statement.split()[2] for statement in VIEWS)
DROP = tuple(f"DROP VIEW {name}" for name in NAMES)
