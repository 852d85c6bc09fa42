"""YAML files: a hostile or damaged file is one message with its position, before anything is built from it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from iowatch.core import InputError, UsageError, parse_json
from iowatch.core.yamlfile import YamlDocument
from iowatch.reference import events
from tests.findings.conftest import root

__all__ = ["root"]

TEN = "[*{0}, *{0}, *{0}, *{0}, *{0}, *{0}, *{0}, *{0}, *{0}, *{0}]"
PAIRS = tuple(zip("abcdefgh", "bcdefghi", strict=True))
# "Billion laughs": nine levels of ten aliases are 10^9 entries.
ALIASES = "a: &a [x, x]\n" + "".join(f"{b}: &{b} {TEN.format(a)}\n" for a, b in PAIRS)
MERGES = "a: &a {x: 1, y: 2}\n" + "".join(f"{b}: &{b}\n  <<: {TEN.format(a)}\n" for a, b in PAIRS)
REFUSED = {
    "aliases": (ALIASES, "f.yaml:6:", "more than 200000 entries, with those of aliases"),
    "merged keys": (MERGES, "f.yaml:", "more than 200000 entries"),
    "500 nested lists": ("a: " + "[" * 500 + "]" * 500, "f.yaml:1:53:", "more than 50 levels"),
    "100,000 nested lists": ("a: " + "[" * 100_000, "f.yaml:1:53:", "more than 50 levels"),
    "nested block lists": ("".join(f"{' ' * n}-\n" for n in range(99)), "f.yaml:51:", "more than 50 levels"),
    "long text": ("a: b\ntitle: " + "x" * 20_001, "f.yaml:2:8:", "a text of 20001 characters"),
    "long key": ("? " + "x" * 20_001 + "\n: b", "f.yaml:1:3:", "a text of 20001 characters"),
    "10 MB": ("title: " + "x" * 10_000_000, "f.yaml:", "larger than 4 MiB"),
    "many entries": ("- 1\n" * 200_001, "f.yaml:", "more than 200000 entries"),
    "list in itself": ("a: &a [1, *a]", "f.yaml:1:11:", "an alias that contains itself"),
    "unknown alias": ("a: *b", "f.yaml:1:4:", "not YAML: found undefined alias"),
    "number of 5,000 digits": ("a: " + "9" * 5_000, "f.yaml:1:4: '999", "is not a valid int"),
    "no boolean": ("a: 1\nb: !!bool maybe", "f.yaml:2:4: 'maybe'", "is not a valid bool"),
    "no date": ("a: !!timestamp x", "f.yaml:1:4: 'x'", "is not a valid timestamp"),
    "no day": ("a: 2026-02-30", "f.yaml:1:4: '2026-02-30'", "is not a valid timestamp"),
    "mapping as key": ("? {a: b}\n: c", "f.yaml:1:3:", "found unhashable key"),
    "Python object": ("a: !!python/object/apply:os.system [id]", "f.yaml:1:4:", "could not determine a constructor"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_file_above_the_limits_is_refused_with_its_position(tmp_path: Path, name: str) -> None:
    text, where, message = REFUSED[name]
    (tmp_path / "f.yaml").write_text(text)
    with pytest.raises(InputError) as error:
        YamlDocument(tmp_path / "f.yaml")
    assert where in error.value.message
    assert message in error.value.message
    assert len(error.value.message) < 500


def test_text_that_no_database_stores_is_cleaned(tmp_path: Path) -> None:
    """YAML 1.2, 5.7: "\\0" in double quotes is NUL, which PostgreSQL refuses in the title of an event."""
    (tmp_path / "f.yaml").write_text('{title: "upgrade\\0", "a\\x00": [1]}')
    assert YamlDocument(tmp_path / "f.yaml").data == {"title": "upgrade\ufffd", "a\ufffd": [1]}


def test_file_at_the_limits_is_read(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    for data in ({"a": "x" * 20_000}, ["1"] * 100_000):
        path.write_text(repr(data))
        assert YamlDocument(path).data == data
    path.write_text("[" * 50 + "]" * 50)
    assert YamlDocument(path).data == eval("[" * 50 + "]" * 50)
    path.write_text("a: &a {x: 1}\nb: *a\nc: {<<: *a, y: 2}")
    assert YamlDocument(path).data == {"a": {"x": 1}, "b": {"x": 1}, "c": {"x": 1, "y": 2}}


def test_faults_of_a_file_are_limited_in_number_and_length(root: Path, cli: Callable[..., Result]) -> None:
    events.event_file_path("local").write_text("system: local\nevents:\n" + f"  - {'x' * 9_000}\n" * 30)
    (root / "systems" / "local").mkdir()
    (root / "systems" / "local" / "system.yaml").touch()
    result = cli("event", "list", "--system", "local")
    assert result.exit_code == 2
    assert "local.yaml:3:" in result.stderr
    assert "10 more faults" in result.stderr
    assert len(result.stderr) < 20 * 600


def test_entry_that_could_not_be_read_again_is_not_written(root: Path) -> None:
    path = events.event_file_path("franklin")
    before = path.read_bytes()
    entry = {"date": "2009-04-01", "kind": "upgrade", "title": "x" * 20_001}
    with pytest.raises(InputError, match="a text of 20001 characters"):
        events.add_event("franklin", entry)
    assert path.read_bytes() == before


def test_json_that_is_nested_too_deeply_is_no_internal_error(tmp_path: Path, cli: Callable[..., Result]) -> None:
    deep = "[" * 100_000
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json(deep)
    assert events.parse_scope([f"a={deep}"]) == {"a": deep}
    (tmp_path / "deep.json").write_text(deep)
    result = cli("compare", tmp_path / "deep.json", tmp_path / "deep.json,stack=x")
    assert (result.exit_code, "not JSON: nested too deeply" in result.stderr) == (2, True), result.stderr
    with pytest.raises(UsageError):
        events.parse_scope([deep])
