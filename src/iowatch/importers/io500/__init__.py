"""Results of IO500 (https://io500.org)."""

from pathlib import Path

from iowatch.core.plugins import ImportFormat

IO500 = ImportFormat("io500", Path(__file__).with_name("result.yaml"))
IO500_SUMMARY = ImportFormat("io500-summary", Path(__file__).with_name("summary.yaml"))
