"""Performance logs of ReFrame."""

from pathlib import Path

from iowatch.core.plugins import ImportFormat

PERFLOG = ImportFormat("reframe-perflog", Path(__file__).with_name("perflog.yaml"))
PERFLOG_3 = ImportFormat("reframe-3-perflog", Path(__file__).with_name("perflog_3.yaml"))
