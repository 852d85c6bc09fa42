"""The command line: one file per command under `commands/`, no logic."""
