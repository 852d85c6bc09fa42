"""Behaviour shared by the checks, one a file; a check is composed of them."""
