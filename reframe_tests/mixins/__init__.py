"""Behaviour shared by the checks, one mixin per file; a check is composed of them."""
