"""Mixins of which the checks are composed, one per file."""
