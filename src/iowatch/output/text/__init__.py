"""Sentences and short texts about findings, decisions and sessions, for a terminal, a mail and pages."""
