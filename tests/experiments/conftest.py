"""Fixtures that make and read Darshan logs."""

from tests.darshan.conftest import make_log, reader

__all__ = ["make_log", "reader"]
