"""Fixtures that make and read Darshan logs, and sites of demonstrations."""

from tests.darshan.conftest import bad_ost_log, make_log, reader
from tests.output.dashboard.conftest import franklin_history, franklin_site, shared

__all__ = ["bad_ost_log", "franklin_history", "franklin_site", "make_log", "reader", "shared"]
