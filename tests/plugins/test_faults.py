"""A plugin with a fault is reported with file and line, and stops only the commands that need it."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result

from iowatch.benchmarks.parsing import RunContext
from iowatch.benchmarks.registry import BENCHMARKS, get_benchmark, parse_output
from iowatch.cli.main import _run_command
from iowatch.core import InputError, UsageError, plugins, settings
from iowatch.core.metrics import METRICS
from iowatch.site.reframe_config import load_configuration
from tests.plugins.examples import example_files, write_examples

Cli = Callable[..., Result]
PAGE = "from iowatch.output.dashboard import Page\nP = Page('{}', 'Blocks', {}, print)\n"
METRIC = 'from iowatch.core import Metric\nOURS = Metric("{}", "s", "lower", "Ours")\n'


@pytest.fixture
def site(tmp_path: Path, var: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The repository of a site with the examples; plugins are loaded from it at the next use of a registry."""
    place = tmp_path / "site"
    (place / "plugins").mkdir(parents=True)
    (place / "site.yaml").write_text("title: Ours\n")
    for folder in (place, place / "plugins"):
        folder.chmod(0o755)  # whatever the umask of the test is
    monkeypatch.chdir(place)
    monkeypatch.delenv("IOWATCH_SITE", raising=False)
    plugins.forget_plugins()
    yield place
    plugins.forget_plugins()


def faults() -> list[str]:
    len(METRICS), len(BENCHMARKS)
    return [fault for plugin in plugins.load_plugins() for fault in plugin.faults]


def add(site: Path, name: str, text: str, mode: int = 0o644) -> Path:
    path = site / "plugins" / name
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("x = (\n", "wrong.py, line 1: '(' was never closed"),
        ("x = 1\n\n1 / 0\n", "wrong.py, line 3: ZeroDivisionError: division by zero"),
        ("import sys\nsys.exit(4)\n", "wrong.py, line 2: SystemExit: 4"),
        ("from iowatch.core import Metric\nM = Metric('a', 's')\n", "wrong.py, line 2: TypeError: "),
        (
            "from iowatch.core import Metric\nM = Metric('a', 's', 'fewer', 'A')\n",
            "wrong.py, line 2: ValueError: metric 'a'",
        ),
        (PAGE.format("blocks", 3), "wrong.py, line 2: ValueError: page 'blocks': expected the name of its file"),
        (PAGE.format("blocks.html", "'3'"), "wrong.py, line 2: ValueError: page 'blocks.html': menu is '3'"),
        ("import nothing_of_this_name\n", "wrong.py, line 1: ModuleNotFoundError: "),
    ],
)
def test_fault_of_an_import_has_file_and_line(site: Path, text: str, fault: str) -> None:
    add(site, "wrong.py", text)
    add(site, "zz.py", METRIC.format("ours"))
    (found,) = faults()
    assert found.startswith(f"{site}/plugins/{fault}")
    assert "ours" in METRICS  # of the other file


def test_commands_go_on_without_the_plugin_except_those_that_need_it(site: Path, cli: Cli) -> None:
    write_examples(site)
    (site / "plugins" / "dd.py").write_text(example_files()["plugins/dd.py"] + "\n1 / 0\n")
    last = len(example_files()["plugins/dd.py"].splitlines()) + 2
    doctor = cli("doctor", "--json")
    fault = f"{site}/plugins/dd.py, line {last}: ZeroDivisionError: division by zero"
    assert json.loads(doctor.stdout)["plugins"] == [
        {"name": "plugins/blocks.py", "adds": ["Page blocks.html"], "faults": []},
        {"name": "plugins/dd.py", "adds": [], "faults": [fault]},
        {"name": "plugins/logfile.py", "adds": ["NoticeChannel logfile"], "faults": []},
        {"name": "plugins/memory_limit.py", "adds": ["CheckExtension memory_limit"], "faults": []},
        {"name": "plugins/newest_week.py", "adds": ["Detector newest-week"], "faults": []},
    ]
    assert f"plugins/dd.py, line {last}: ZeroDivisionError" in doctor.stderr
    needed = cli("run", "--suite", "blocks")
    assert (needed.exit_code, "no benchmark 'dd'" in needed.stderr) == (2, True)


def test_names_of_the_product_stay_its_own(site: Path) -> None:
    add(site, "a.py", METRIC.format("bandwidth"))
    add(site, "b.py", METRIC.format("ours"))
    add(site, "c.py", METRIC.format("ours"))
    assert faults() == [
        f"{site}/plugins/a.py: Metric 'bandwidth': there is another one of this name",
        f"{site}/plugins/c.py: Metric 'ours': there is another one of this name",
    ]
    assert METRICS["bandwidth"].unit == "MiB/s"


def test_imported_objects_of_the_product_are_no_collision(site: Path) -> None:
    add(site, "a.py", "from iowatch.benchmarks.ior import IOR\n")
    add(site, "_common.py", METRIC.format("ours"))
    add(site, "b.py", "from ._common import OURS\n")
    assert faults() == []
    assert "ours" in METRICS
    assert BENCHMARKS.plugin_of("ior") is None
    plugins.checked_plugins()
    # The registries that are imported; which ones are depends on the command.
    (fault,) = (fault for fault in faults() if "a.py" in fault)
    text, _, types = fault.partition(" of ")
    assert text == f"{site}/plugins/a.py: it defines no object"
    assert {"Metric", "Benchmark"} <= set(types.split(", "))


def test_plugin_may_use_registries_while_it_is_loaded(site: Path) -> None:
    text = (
        'from dataclasses import replace\nfrom iowatch.core import METRICS\nM = replace(METRICS["time"], name="ours")\n'
    )
    add(site, "a.py", text)
    assert faults() == []
    assert METRICS["ours"].label == METRICS["time"].label


def test_page_that_fails_states_its_fault_and_the_others_are_complete(site: Path, history: object, cli: Cli) -> None:
    write_examples(site)
    (site / "plugins" / "templates" / "blocks.html").write_text(
        '{% extends "base.html" %}\n{% block main %}\n{{ nothing }}\n{% endblock %}\n'
    )
    built = cli("dashboard", "build", "--output", str(site / "pages"))
    assert built.exit_code == 0, built.stderr
    fault = f"{site}/plugins/templates/blocks.html, line 3: UndefinedError: "
    assert fault in built.stderr
    page = (site / "pages" / "blocks.html").read_text()
    assert fault in page
    assert ">Stacks</a>" in page
    assert "plugin" not in (site / "pages" / "stacks.html").read_text()


def test_exception_of_a_parser_is_the_reason_of_its_output(site: Path) -> None:
    text = example_files()["plugins/dd.py"].replace("    blocks = 0\n", "    blocks = undefined_name\n")
    line = 1 + text.splitlines().index("    blocks = undefined_name")
    add(site, "dd.py", text)
    output = parse_output("dd", "4+0 records out\n", RunContext())
    assert output.status == "incomplete"
    assert str(output.reason).startswith(f"parse error: {site}/plugins/dd.py, line {line}: NameError")


def test_name_of_a_benchmark_is_a_folder_and_a_part_of_names(site: Path) -> None:
    add(site, "dd.py", example_files()["plugins/dd.py"].replace('name="dd"', 'name="../dd"'))
    (found,) = faults()
    assert re.search(r"plugins/dd\.py, line \d+: ValueError: benchmark '\.\./dd': expected a name of", found)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ("{block: [64k, 1x]}", "option 'block' of dd (size of a block): expected a size such as 4096, 64k or 1m of at"),
        ("{blok: 1m}", "dd has no option 'blok'. Did you mean 'block'? Known: block, total, repeat."),
        ("{block: 3m}", "option 'total' of dd: 4194304 bytes are not a multiple of 3145728 bytes"),
        ("{block: 1m, repeat: 0}", "option 'repeat' of dd (number of files): expected a whole number of at least 1"),
    ],
)
def test_wrong_option_of_a_plugin_is_found_by_its_declaration(site: Path, cli: Cli, options: str, fault: str) -> None:
    write_examples(site)
    suite = site / "suites" / "dd" / "blocks.yaml"
    suite.write_text(suite.read_text().replace("{block: [64k, 1m]}", options))
    refused = cli("run", "--suite", "blocks", "--dry-run")
    assert refused.exit_code == 2
    message = " ".join(refused.stderr.split())
    assert "suites/dd/blocks.yaml:" in message
    assert fault in message


def test_options_of_a_plugin_that_are_not_declared_are_a_fault_of_its_import(site: Path) -> None:
    text = example_files()["plugins/dd.py"]
    add(site, "dd.py", text.replace("    options=OPTIONS,\n", '    options={"block": "size of a block"},\n'))
    assert "ValueError: benchmark 'dd', option 'block': expected an Option" in faults()[0]


def test_exception_of_another_function_has_file_and_line_and_no_traceback(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_examples(site)
    text = example_files()["plugins/dd.py"].replace("""requires=lambda options: ("mpi",)""", "requires=lambda o: o.mpi")
    line = 1 + text.splitlines().index("    requires=lambda o: o.mpi,")
    (site / "plugins" / "dd.py").write_text(text)
    assert _run_command(["run", "--suite", "blocks"]) == 2
    assert f"plugin: {site}/plugins/dd.py, line {line}: AttributeError" in capsys.readouterr().err


@pytest.mark.parametrize(
    "place",
    ["site", "site/plugins", "site/plugins/ours.py", "site/plugins/_common.py", "site/plugins/templates/x.html"],
)
@pytest.mark.parametrize(("change", "reason"), [("mode", "can be written by every account"), ("owner", "belongs to")])
def test_code_that_others_can_write_is_not_executed(
    site: Path, monkeypatch: pytest.MonkeyPatch, place: str, change: str, reason: str
) -> None:
    """A repository in /tmp, a plugin that everybody may edit: the marker shows whether the code ran."""
    monkeypatch.setenv("IOWATCH_SITE", str(site))  # otherwise its site.yaml would be refused already
    marker = site.parent / "executed"
    add(site, "ours.py", f"import os\nos.mkdir({str(marker)!r})\n" + METRIC.format("ours"))
    add(site, "_common.py", "")
    (site / "plugins" / "templates").mkdir(mode=0o755)
    add(site, "templates/x.html", "")
    target = site.parent / place
    if change == "mode":
        target.chmod(target.stat().st_mode | 0o002)
    elif os.geteuid():
        pytest.skip("only root can give a file to another account")
    else:
        os.chown(target, 65534, -1)
    (found,) = faults()
    assert re.match(rf"{site}/plugins[\w/.]* is not executed: {target} {reason}", found)
    assert not marker.exists()
    assert "ours" not in METRICS
    plugins.forget_plugins()
    monkeypatch.setenv("IOWATCH_TRUSTED_SITE", str(site))
    assert faults() == []
    assert marker.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another group")
def test_group_of_another_account_may_not_write_code(site: Path) -> None:
    path = add(site, "ours.py", METRIC.format("ours"), 0o664)
    assert faults() == []  # the private group of this account
    plugins.forget_plugins()
    os.chown(path, -1, 65534)
    assert next(fault.partition(": ")[2] for fault in faults()).startswith(f"{path} can be written by the group")


def test_configuration_of_a_system_that_others_can_write_is_not_executed(site: Path) -> None:
    (site / "systems" / "ours").mkdir(parents=True, mode=0o755)
    path = site / "systems" / "ours" / "reframe.py"
    path.write_text("raise SystemExit(9)\n")
    path.chmod(0o666)
    with pytest.raises(InputError, match=r"reframe\.py is not executed: .* can be written by every account"):
        load_configuration("ours")


def test_check_is_that_of_the_plugin(site: Path) -> None:
    from iowatch.session.reframe import check_path

    write_examples(site)
    assert check_path("dd") == site / "plugins/reframe_tests/dd.py"
    assert check_path("ior") == settings.product_root() / "reframe_tests/ior.py"
    (site / "plugins/reframe_tests/dd.py").unlink()
    with pytest.raises(InputError, match=r"plugins/reframe_tests/dd\.py: cannot read the check of dd"):
        check_path("dd")


def test_entry_point_of_an_installed_package(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with its metadata, as pip installs it, and one whose module is missing."""
    place = site.parent / "installed"
    package = place / "ddplugin"
    (package / "reframe_tests").mkdir(parents=True)
    (package / "__init__.py").write_text(example_files()["plugins/dd.py"])
    (package / "reframe_tests" / "dd.py").write_text(example_files()["plugins/reframe_tests/dd.py"])
    metadata = place / "ddplugin-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: ddplugin\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[iowatch.plugins]\ndd = ddplugin\nabsent = no_such_plugin\n")
    monkeypatch.syspath_prepend(str(place))
    try:
        assert faults() == ["no_such_plugin: ModuleNotFoundError: No module named 'no_such_plugin'"]
        plugin = BENCHMARKS.plugin_of("dd")
        assert plugin is not None
        assert (plugin.name, plugin.path) == ("dd", package / "__init__.py")
        assert plugins.template_folders() == [package / "templates"]
    finally:
        sys.modules.pop("ddplugin", None)


def test_unknown_benchmark_without_plugins(site: Path) -> None:
    with pytest.raises(UsageError, match="no benchmark 'dd'"):
        get_benchmark("dd")
