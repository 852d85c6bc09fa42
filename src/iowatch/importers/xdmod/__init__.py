"""Exports of XDMoD (https://open.xdmod.org)."""

from pathlib import Path

from iowatch.core.plugins import ImportFormat

XDMOD = ImportFormat("xdmod", Path(__file__).with_name("export.yaml"))
XDMOD_APPKERNELS = ImportFormat("xdmod-appkernels", Path(__file__).with_name("appkernels.yaml"))
