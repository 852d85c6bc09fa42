-- A role that can read an iowatch history in PostgreSQL and change nothing: for Grafana, psql, and
-- `iowatch dashboard build` on another host. Run it as the owner of the database, once:
--
--     psql "$DATABASE" -v reader=iowatch_reader -f dashboards/grafana/reader.sql
--     psql "$DATABASE" -c '\password iowatch_reader'
\set ON_ERROR_STOP on
SELECT format('CREATE ROLE %I LOGIN', :'reader') WHERE to_regrole(quote_ident(:'reader')) IS NULL \gexec
ALTER ROLE :"reader" SET default_transaction_read_only = on;
ALTER ROLE :"reader" SET statement_timeout = '120s';
GRANT USAGE ON SCHEMA public TO :"reader";
GRANT SELECT ON ALL TABLES IN SCHEMA public TO :"reader";
-- Tables and views of later versions, too.
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT ON TABLES TO :"reader";
