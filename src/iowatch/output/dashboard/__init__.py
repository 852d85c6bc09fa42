"""The dashboard: a static site built from the history; no network at view time.

Pages import their building blocks from here.
"""

from iowatch.output.dashboard.data import Catalogue, Page, SiteBuild, SystemEntry, collect_catalogue
from iowatch.output.dashboard.site import embed_json, safe_file_name, shorten_text, site_build, write_in_processes
