"""Summaries of a year of nightly benchmarks (TOKIO-ABC, NERSC)."""

from pathlib import Path

from iowatch.core.plugins import ImportFormat

TOKIO = ImportFormat("tokio", Path(__file__).with_name("summaries.yaml"))
