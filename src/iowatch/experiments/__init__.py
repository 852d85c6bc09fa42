"""Experiments on top of the suite, one folder each. They join it by registries (iowatch.core.plugins)."""
