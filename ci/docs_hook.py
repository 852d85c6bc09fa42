"""Hook of MkDocs (mkdocs.yml): pages made from the code, and the files of the top directory as pages.

README.md, CONTRIBUTING.md, CHANGELOG.md ──┐ links rewritten
commands, settings, models, metrics ───────┼──> pages that exist only while the site is built
docs/*.md ─────────────────────────────────┘
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from pydantic import BaseModel

from iowatch.cli.main import iowatch, walk_commands
from iowatch.core import METRICS
from iowatch.site.system import System

ROOT = Path(__file__).resolve().parents[1]
# Files of the top directory and their pages; LICENSE is a text without a page.
TOP_FILES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/."""
    pages = {page: _relink((ROOT / name).read_text(encoding="utf-8")) for name, page in TOP_FILES.items()}
    pages["generated/commands.md"] = "\n".join(_command_lines())
    pages["generated/system-yaml.md"] = "\n".join(_model_lines())
    pages["generated/metrics.md"] = "\n".join(_metric_lines())
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Turn links of docs/ to files of the top directory into links to their pages; and code of GitHub's tables.

    There, `a\\|b` in a table is the code a|b; here, a bar in code is no border, and the backslash would be shown.
    """
    markdown = re.sub(r"`[^`\n]+`", lambda code: code[0].replace("\\|", "|"), markdown)
    return re.sub(rf"\]\(\.\./({'|'.join(TOP_FILES)})", lambda found: f"]({TOP_FILES[found[1]]}", markdown)


def _relink(text: str) -> str:
    """Links of a file of the top directory, as those of a page beside docs/*.md."""
    text = text.replace("](docs/", "](").replace("[LICENSE](LICENSE)", "LICENSE")
    return re.sub(r"\]\((\w+\.md)", lambda found: f"]({TOP_FILES.get(found[1], found[1])}", text)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    escaped = (" | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) for row in rows)
    return ["", f"| {' | '.join(columns)} |", "|---" * len(columns) + "|", *(f"| {row} |" for row in escaped), ""]


def _command_lines() -> Iterator[str]:
    """A section per command, from its own help."""
    yield "# Commands\n\nMade from their help. [Their use](../command-line.md): messages, exit codes, completion."
    root = click.Context(iowatch, info_name="iowatch")
    for found in walk_commands(root):
        shown = found.command
        yield f"\n{'##' if len(found.command_path.split()) <= 2 else '###'} {found.command_path}\n"
        usage = [*shown.collect_usage_pieces(found)]
        yield from ("```text", f"{found.command_path} {' '.join(usage)}", "```", "")
        text = inspect.cleandoc(shown.help or "").replace("\x08\n", "")
        yield re.sub(r"`iowatch docs ([\w-]+)`", r"[\1.md](../\1.md)", text)
        common = {option.name for option in root.command.params} | {"help"} if found.parent else set()
        parameters = (one for one in shown.get_params(found) if isinstance(one, click.Option))
        options = [one for one in parameters if one.name not in common]
        rows = [record for one in options if (record := one.get_help_record(found))]
        if rows:
            yield from _table(("option", "meaning"), [(f"`{name}`", text) for name, text in rows])
        if shown.epilog:
            yield from (
                "",
                "```sh",
                re.sub(r"^\x08\nExamples?:\n", "", shown.epilog).replace("\n  ", "\n").strip(),
                "```",
            )


def _model_lines() -> Iterator[str]:
    """Every block of `system.yaml`: fields, types and limits from the models, meanings from their docstrings."""
    yield "# system.yaml\n\nMade from the models that read the file. Unknown fields are refused."
    yield "[Describe a system](../systems.md#fields-of-systemyaml) explains how the fields work together."
    schema = System.model_json_schema()
    documented = dict(_models(System))
    for name, block in [("system.yaml", schema), *sorted(schema.get("$defs", {}).items())]:
        if "properties" not in block:
            continue
        meanings = _attributes(documented.get(name)) if name in documented else _documented_fields()
        rows = [
            (f"`{field}`", _kind(facts), _limit(facts, field in block.get("required", ())), meanings.get(field, ""))
            for field, facts in block["properties"].items()
        ]
        yield f"\n## {name}"
        yield from _table(("field", "type", "default", "meaning"), rows)


def _models(model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    """All models below one, by name."""
    module = inspect.getmodule(model)
    yield from inspect.getmembers(module, lambda one: inspect.isclass(one) and issubclass(one, BaseModel))


def _attributes(model: type[BaseModel] | None) -> dict[str, str]:
    """The meanings in the part `Attributes:` of a docstring."""
    text = inspect.cleandoc((model and model.__doc__) or "").partition("Attributes:\n")[2]
    return {name: " ".join(words.split()) for name, words in re.findall(r"^ {4}(\w+): (.*(?:\n {5,}.*)*)", text, re.M)}


def _documented_fields() -> dict[str, str]:
    """The meanings of the top fields, from the table of docs/systems.md; a row may describe several."""
    table = (ROOT / "docs" / "systems.md").read_text(encoding="utf-8").partition("## Fields of system.yaml")[2]
    rows = re.findall(r"^\| (`.*?) \| (.*) \|$", table.partition("\n## ")[0], re.M)
    relinked = ((names, re.sub(r"\]\((?=[\w-]+\.md)", "](../", text)) for names, text in rows)
    return {
        name: text.replace("](#", "](../systems.md#")
        for names, text in relinked
        for name in re.findall(r"`(\w+)`", names)
    }


def _kind(facts: dict[str, Any]) -> str:
    """The type of a field of a JSON schema, in words."""
    if "$ref" in facts:
        name = facts["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if options := facts.get("anyOf") or facts.get("allOf"):
        return " or ".join(dict.fromkeys(_kind(one) for one in options if one.get("type") != "null"))
    if "enum" in facts or "const" in facts:
        return ", ".join(f"`{one}`" for one in facts.get("enum") or [facts["const"]])
    if facts.get("type") == "array":
        return f"list of {_kind(facts.get('items', {}))}"
    if facts.get("type") == "object":
        return f"by name: {_kind(facts.get('additionalProperties', {}))}"
    limits = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    return " ".join(
        [facts.get("type", "any"), *(f"{sign} {facts[key]}" for key, sign in limits.items() if key in facts)]
    )


def _limit(facts: dict[str, Any], required: bool) -> str:
    value = facts.get("default")
    return (
        "required" if required else "" if value in (None, []) or isinstance(value, dict) else f"`{str(value).lower()}`"
    )


def _metric_lines() -> Iterator[str]:
    yield "# Metrics\n"
    yield "The table of `iowatch.core.metrics`. Values above the ceiling are rejected."
    yield "A case is monitored by the first of its headline metrics in this order."
    yield from _table(
        ("metric", "unit", "better", "headline", "ceiling", "meaning"),
        [
            (f"`{one.name}`", one.unit, one.direction, "yes" if one.headline else "", f"{one.ceiling:g}", one.label)
            for one in METRICS.values()
        ],
    )
