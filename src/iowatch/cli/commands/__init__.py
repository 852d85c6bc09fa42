"""One module a command; each exposes `command`, a click command or group named as the module is."""
