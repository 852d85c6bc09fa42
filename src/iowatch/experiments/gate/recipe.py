"""Recipes for CI systems that `iowatch gate --recipe` prints: files of `ci/gate`, which the wheel contains."""

from __future__ import annotations

from iowatch.core import settings

# Files of `ci/gate`, by the name of the service.
RECIPES = {"github": "github.yml", "gitlab": "gitlab.yml"}


def read_recipe(service: str) -> str:
    """The text of the recipe for a service, a key of `RECIPES`."""
    return (settings.product_root() / "ci" / "gate" / RECIPES[service]).read_text(encoding="utf-8")
