"""Benchmarks: one registry entry each with options, command line, expected results and parser; also suites."""
