"""The dashboard: a static site made from the history; no network at view time.

`collect` reads, a page a file under `pages/` decides what is shown, templates in `dashboards/templates/` how,
`build` writes beside and switches at once.
"""
