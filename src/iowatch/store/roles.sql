-- Roles of an iowatch history in PostgreSQL (docs/history.md, "Several people"). `iowatch history roles` prints this
-- file. Run it as the owner of the history, when it exists, and again after each upgrade of iowatch:
--
--     iowatch history roles | psql "$DATABASE"
--
-- The roles are named after the database, here `iowatch`. Give one of them to each account:
--
--     CREATE ROLE alice LOGIN;                 GRANT iowatch_reviewer TO alice;
--
-- Creating roles needs CREATEROLE; else let an administrator create the three roles (NOLOGIN) before.
\set ON_ERROR_STOP on
SELECT format('CREATE ROLE %I NOLOGIN', current_database() || suffix)
FROM unnest(ARRAY['_reader', '_reviewer', '_writer']) AS suffix
WHERE to_regrole(quote_ident(current_database() || suffix)) IS NULL \gexec
SELECT current_database() || '_reader' AS reader, current_database() || '_reviewer' AS reviewer,
    current_database() || '_writer' AS writer \gset
BEGIN;
REVOKE CREATE ON SCHEMA public FROM PUBLIC;
GRANT USAGE ON SCHEMA public TO :"reader", :"reviewer", :"writer";
GRANT SELECT ON ALL TABLES IN SCHEMA public TO :"reader", :"reviewer", :"writer";
-- Tables and views of later versions, too.
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT ON TABLES TO :"reader", :"reviewer", :"writer";
-- A decision updates findings, and what they are computed from; nothing measured.
GRANT INSERT, UPDATE ON finding, detection TO :"reviewer", :"writer";
GRANT INSERT ON run_covariates TO :"reviewer", :"writer";
GRANT UPDATE (attributes) ON session TO :"reviewer";
-- A session adds results and ends itself; it cannot change or delete what is measured.
GRANT INSERT ON system, stack, expected_set, session, case_definition, series, run, result, artefact TO :"writer";
GRANT UPDATE ON session TO :"writer";
GRANT EXECUTE ON FUNCTION iowatch_result_partition TO :"writer"; -- the partition of a new year
GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO :"writer";
COMMIT;
