"""Faults: kills at random moments, full disks, clocks set back, several at once.

`make test` runs a small seeded sample; `python -m tests.faults.campaign` runs the whole campaign.
"""
