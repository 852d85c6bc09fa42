"""The checks: one thin module per benchmark; what they share is in `iowatch.checks`."""
