"""Hostile names and files through terminal, pages in Chromium, exports and notices: prints the faults (aim: none)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

if __name__ == "__main__":
    root = Path(__file__).resolve().parent.parent
    sys.exit(subprocess.run([sys.executable, "-m", "tests.faults.hostile"], cwd=root, check=False).returncode)
