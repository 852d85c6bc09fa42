"""Demonstrations: histories with a known story, built from a stated model in a database of their own."""
