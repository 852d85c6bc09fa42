"""Tests of the parsers."""
