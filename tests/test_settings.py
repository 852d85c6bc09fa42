"""Every environment variable that the code reads is documented."""

from __future__ import annotations

import re
from importlib import util

import pytest

from iowatch.core.settings import environment_settings, settings_model
from tests.conftest import ROOT

# A variable as code reads or sets it, not as text mentions it.
_READ = re.compile(r"""["'{$](IOWATCH_[A-Z_]*[A-Z])\b""")
_DOCUMENTED = re.compile(r"\bIOWATCH_[A-Z_]*[A-Z]\b")
# Secrets of channels are named by each site in its own file; these are examples.
_EXAMPLES = {"IOWATCH_SLACK", "IOWATCH_HOOK", "IOWATCH_CHAT", "IOWATCH_HOOK_TOKEN", "IOWATCH_CHAT_URL"}


# The documents describe them, and a copy without these folders does not have them (tests/test_suite_alone.py).
_OF_ABSENT_CAPABILITIES: set[str] = set()
if util.find_spec("iowatch.applications") is None:
    _OF_ABSENT_CAPABILITIES |= {"log_executables", "IOWATCH_LOG_EXECUTABLES"}
if util.find_spec("iowatch.experiments") is None:
    _OF_ABSENT_CAPABILITIES |= {"IOWATCH_COMMIT", "IOWATCH_PREFIX"}


def _named(pattern: re.Pattern[str], *places: str) -> set[str]:
    files = [path for place in places for path in sorted((ROOT / place).rglob("*")) or [ROOT / place]]
    texts = (path.read_text(errors="ignore") for path in files if path.is_file() and path.suffix != ".pyc")
    return {name for text in texts for name in pattern.findall(text)} - _EXAMPLES


@pytest.mark.parametrize(
    ("document", "places"),
    [("docs/settings.md", ("src", "reframe_tests")), ("CONTRIBUTING.md", ("tests", "systems/slurm-local", "ci/audit"))],
)
def test_every_variable_is_documented(document: str, places: tuple[str, ...]) -> None:
    read = _named(_READ, *places)
    assert len(read) >= 5
    documented = _named(_DOCUMENTED, document, *(["docs/settings.md"] if document == "CONTRIBUTING.md" else []))
    assert read - documented == set()


def test_every_documented_variable_is_read() -> None:
    documented = _named(_DOCUMENTED, "docs", "README.md", "CONTRIBUTING.md")
    read = _named(_READ, "src", "reframe_tests", "tests", "systems", "ci")
    assert documented - read - _OF_ABSENT_CAPABILITIES == set()


def test_table_of_settings_agrees_with_the_code() -> None:
    """Each field of `site.yaml` with its variable, and each variable with the option that has precedence."""
    table = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8").split("\n|---", 1)[1].split("\n\n")[0]
    shown = [[re.findall(r"`([^`]+)`", cell) for cell in row.split("|")[1:4]] for row in table.splitlines()[1:]]
    shown = [cells for cells in shown if not _OF_ABSENT_CAPABILITIES.intersection(cells[0])]
    by_field = {row.field: row for row in environment_settings() if row.field}
    assert {field for fields, *_ in shown for field in fields} == set(settings_model().model_fields)
    assert {variable for _, variables, _ in shown for variable in variables} == {
        row.variable for row in environment_settings()
    }
    for fields, variables, options in shown:
        assert [by_field[field].variable for field in fields if field in by_field] == (variables if fields else [])
        rows = [row for row in environment_settings() if row.variable in variables]
        assert {row.option for row in rows} - {None} == set(options[:1])
