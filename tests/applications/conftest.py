"""Fixtures that make and read Darshan logs, and sites of demonstrations."""

from tests.darshan.conftest import make_log, reader
from tests.output.dashboard.conftest import franklin_history, franklin_site, shared

__all__ = ["franklin_history", "franklin_site", "make_log", "reader", "shared"]
