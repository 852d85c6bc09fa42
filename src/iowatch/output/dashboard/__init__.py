"""The dashboard: a static site built from the history; no network at view time.

Pages import their building blocks from here.
"""

from typing import TYPE_CHECKING

from iowatch.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from iowatch.output.dashboard.data import Catalogue, Page, SiteBuild, SystemEntry, collect_catalogue
    from iowatch.output.dashboard.site import embed_json, safe_file_name, shorten_text, site_build, write_in_processes
else:
    __getattr__ = lazy_names(__name__)
