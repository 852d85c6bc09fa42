"""One module per command; each defines `command`, a click command or group. main.py finds them by file name."""
