"""The checks: one thin module per benchmark; shared behaviour is in `mixins/`."""
