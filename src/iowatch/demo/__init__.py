"""Demonstrations: histories with known changes, in a database of their own."""
