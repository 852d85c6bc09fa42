"""The checks: one module a benchmark, thin; what they share is in `mixins/`."""
