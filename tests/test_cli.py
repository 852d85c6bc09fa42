"""The command line: help with an example, exit codes, one message and no traceback."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import Result

from iowatch.cli import commands as commands_folder
from iowatch.cli.common import stdout_console
from iowatch.cli.main import COMMANDS, iowatch, restrict_permissions, walk_commands
from iowatch.site import machine
from iowatch.site.system import load_system, system_names
from iowatch.store import FindingRow, History
from tests.builders import build_session


@cache
def contexts() -> dict[tuple[str, ...], click.Context]:
    """The context of every command and subcommand, by its words; that of `iowatch` itself has none."""
    root = click.Context(iowatch, info_name="iowatch")
    return {tuple(found.command_path.split()[1:]): found for found in walk_commands(root)}


def commands() -> list[tuple[str, ...]]:
    """All commands and subcommands."""
    return [words for words in contexts() if words]


def command_of(words: tuple[str, ...]) -> click.Command:
    """The command or subcommand of these words."""
    return contexts()[words].command


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_has_help_with_an_example(cli: Callable[..., Result], words: tuple[str, ...]) -> None:
    result = cli(*words, "--help")
    assert result.exit_code == 0
    assert "Example" in result.output
    assert f"iowatch {words[0]}" in result.output


def test_help_lists_every_command_once_by_what_it_is_for(cli: Callable[..., Result]) -> None:
    """First what an administrator of nightly sessions uses; those of experiments and applications are there, too."""
    shown = cli("--help").output.split("\nEvery night:")[1].split("Example")[0]
    named = re.findall(r"^  ([a-z]+)  +\S", shown, re.MULTILINE)
    assert named[:6] == ["nightly", "findings", "review", "event", "dashboard", "notify"]
    assert sorted(named) == sorted(COMMANDS)
    files = {path.stem.rstrip("_") for path in Path(commands_folder.__file__).parent.glob("[a-z]*.py")}
    assert files <= {*COMMANDS}, "a file of cli/commands without its row in COMMANDS"


@pytest.mark.parametrize("position", [0, 2], ids=["before the command", "behind it"])
@pytest.mark.sqlite_file
def test_quiet_and_verbose(cli: Callable[..., Result], history: History, tmp_path: Path, position: int) -> None:
    """The size of a backup is a message; which history is opened is for --verbose."""
    outputs = []
    for number, flag in enumerate(([], ["--quiet"], ["--verbose"], [])):
        words: list[object] = ["history", "backup", tmp_path / f"{number}.db"]
        words[position:position] = flag
        outputs.append(cli(*words).stderr)
    normal, quiet, verbose, again = outputs
    assert re.fullmatch(r".*/0\.db: \S+ KiB\n", normal)
    assert quiet == ""
    assert "history: sqlite:///" in verbose
    assert verbose.endswith(normal.replace("0.db", "2.db"))
    assert again == normal.replace("0.db", "3.db")  # the level is that of one command, not of the process


def test_verbose_shows_programs_and_tracebacks(cli: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> list[str]:
        assert machine.query_command("echo", "two words") == "two words\n"
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("iowatch.site.system.system_names", fail)
    normal, verbose = cli("system", "list"), cli("system", "list", "--verbose")
    assert (normal.exit_code, verbose.exit_code) == (3, 3)
    assert "ZeroDivisionError('planted')" in normal.stderr
    assert "Traceback" not in normal.stderr
    assert "starts: echo 'two words'\n" in verbose.stderr
    assert re.search(r"Traceback .*\n(.*\n)*ZeroDivisionError: planted\n", verbose.stderr)


def test_errors_are_printed_with_quiet(cli: Callable[..., Result], var: Path) -> None:
    assert "no history at" in cli("--quiet", "history", "list").stderr


def test_colours_are_for_terminals_without_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    """NO_COLOR (no-color.org) removes colours even where the output is a terminal."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")

    def shown() -> str:
        console = stdout_console()
        with console.capture() as capture:
            console.print("slower", style="red")
        return capture.get()

    assert "\x1b[31m" in shown()
    monkeypatch.setenv("NO_COLOR", "1")
    assert shown() == "slower\n"


COMPLETIONS = [
    (["com"], {"compare", "completion"}),
    (["run", "--system", "slurm"], {"slurm-local"}),
    # A retired system is not measured; its results can be shown.
    (["run", "--system", "fran"], set()),
    (["run", "--suite", "smo"], {"smoke"}),
    (["run", "--dry"], {"--dry-run"}),
    (["history", "list", "--benchmark", "ben"], {"benchio"}),
    (["stack", "show", "netcdf-4.4"], {"netcdf-4.4.0"}),
    (["system", "show", "fran"], {"franklin"}),
    (["findings", "show", "franklin-20090317"], {"franklin-20090317-up"}),
    (["findings", "show", "x"], set()),
]


@pytest.mark.parametrize(("words", "expected"), COMPLETIONS, ids=[" ".join(words) for words, _ in COMPLETIONS])
def test_names_are_completed(words: list[str], expected: set[str], history: History) -> None:
    history.begin_session(build_session("first", system="franklin", origin="demo", started_at=1_237_248_000))
    history.save_findings([FindingRow("franklin-20090317-up", "franklin", 1_237_248_000, 1_237_248_000, "open", {})])
    found = ShellComplete(iowatch, {}, "iowatch", "_IOWATCH_COMPLETE").get_completions(words[:-1], words[-1])
    assert {item.value for item in found} == expected


def test_completion_without_a_history_is_empty(var: Path) -> None:
    """A message would appear within the line that somebody types."""
    completer = ShellComplete(iowatch, {}, "iowatch", "_IOWATCH_COMPLETE")
    assert completer.get_completions(["findings", "show"], "") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(cli: Callable[..., Result], shell: str) -> None:
    """The script is valid for its shell where that is installed, and calls `iowatch` back."""
    script = cli("completion", shell).stdout
    assert f"_IOWATCH_COMPLETE={shell}_complete" in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)


def test_bash_completes_with_the_printed_script(tmp_path: Path) -> None:
    """As a person uses it: the script is evaluated, then its function is called for the words of a line."""
    program = tmp_path / "iowatch"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from iowatch.cli.main import main; main()" "$@"\n')
    program.chmod(0o755)
    line = "COMP_WORDS=(iowatch hist); COMP_CWORD=1; _iowatch_completion iowatch; echo ${COMPREPLY[@]}"
    script = f'PATH={tmp_path}:$PATH; eval "$(iowatch completion bash)"; {line}'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "history\n", done.stderr


def test_help_imports_no_slow_library() -> None:
    """Importing NumPy, SQLAlchemy and ReFrame takes seconds on a shared login node."""
    program = (
        "import sys; from iowatch.cli.main import iowatch; iowatch.main(['--help'], standalone_mode=False);"
        "print(sorted({'numpy', 'scipy', 'sqlalchemy', 'reframe', 'darshan', 'pydantic'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


JSON_HELP = "One JSON document on stdout and nothing else."
WRONG = [
    (("nonsense",), 2, "no command"),
    (("demo", "nosuch"), 2, "no command 'nosuch'. Known: edison, franklin, netcdf, regress"),
    (("history", "restore", "x"), 2, "Did you mean 'copy'?"),
    (("dashbord",), 2, "Did you mean 'dashboard'?"),
    (("run", "--suite", "smok"), 2, "Did you mean 'smoke'?"),
    (("run", "--system", "locl"), 2, "locl"),
    (("run", "--system", "franklin"), 2, "franklin"),
    (("run", "--ab", "a", "b", "--stack", "c"), 2, "leave --stack out"),
    (("run", "--ab", "a", "b", "--night"), 2, "--night and --ab exclude each other"),
    (("run", "--ab", "a", "b", "--no-jitter"), 2, "--no-jitter is for --night"),
    (("run", "--seed", "0"), 2, "are for --ab"),
    (("run", "--suite", "tiny", "--benchmark", "iro"), 2, "suite 'tiny' has no benchmark 'iro'"),
    (
        ("run", "--suite", "tiny", "--case", "benchio:api=hdf5,file=share"),
        2,
        "Did you mean benchio:api=hdf5,file=shared?",
    ),
    (("run", "--dry-run", "--markdown", "x.md"), 2, "--dry-run measures nothing"),
    (("run", "--dry-run", "--ab", "a", "b"), 2, "--dry-run measures nothing"),
    (("run", "--no-jitter"), 2, "--no-jitter is for --night"),
    (("import", "ioor", "x", "--system", "local"), 2, "ioor"),
    (("history", "show", "nowhere"), 2, "no history at"),
    (("stack", "show", "x" * 5000), 2, "File name too long"),
    (("history", "list", "--db", "/proc/x/y.db"), 2, "no history at"),
]


@pytest.mark.parametrize(("words", "code", "message"), WRONG, ids=[" ".join(w)[:60] for w, _, _ in WRONG])
def test_invalid_use_is_one_message_with_its_exit_code(
    cli: Callable[..., Result], var: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    result = cli(*words)
    assert result.exit_code == code
    assert message in result.output
    assert "Traceback" not in result.output


def required_parameters() -> list[tuple[tuple[str, ...], str]]:
    """Every required option and argument of every command, by its name."""
    return [(words, one.name or "") for words in commands() for one in command_of(words).params if one.required]


def valid_words(parameter: click.Parameter) -> list[str]:
    """An option or argument with a value that its type accepts."""
    values = {click.DateTime: "2026-01-01", click.Path: __file__, click.types.IntParamType: "1"}
    kind = parameter.type
    value = str(kind.choices[0]) if isinstance(kind, click.Choice) else values.get(type(kind), "local")
    return [parameter.opts[0], value] if isinstance(parameter, click.Option) else [value]


@pytest.mark.parametrize(("words", "name"), required_parameters(), ids=str)
def test_required_options_are_enforced(
    cli: Callable[..., Result], var: Path, words: tuple[str, ...], name: str
) -> None:
    """With an explicit `default=None`, click 8.5 takes None as the value of an absent option."""
    required = [one for one in command_of(words).params if one.required]
    absent = next(one for one in required if one.name == name)
    behind = required[required.index(absent) + 1 :]
    # An argument would take the place of the absent one.
    given = [one for one in required if one is not absent and (one not in behind or isinstance(one, click.Option))]
    result = cli(*words, *(word for one in given for word in valid_words(one)))
    kind = "option" if isinstance(absent, click.Option) else "argument"
    title = "' / '".join(absent.opts) if kind == "option" else absent.make_metavar(click.Context(command_of(words)))
    assert result.exit_code == 2
    assert f"Missing {kind} '{title}'" in result.output


def test_systems_are_required_where_commands_cannot_choose() -> None:
    """The list above comes from the commands themselves: these must be in it."""
    asked = {" ".join(words) for words, name in required_parameters() if name == "system"}
    assert asked >= {"notify", "import", "event add", "event list", "reference propose"}


@pytest.mark.parametrize("encoding", ["ascii", "iso-8859-1", "utf-8"])
def test_output_works_in_every_locale(encoding: str) -> None:
    """Not all encodings have the dashes and multiplication signs of the output; JSON is complete."""
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    words = [sys.executable, "-c", "from iowatch.cli.main import main; main()", "system", "show", "hamburg"]
    results = [
        subprocess.run([*words, *more], capture_output=True, env=environment, check=False) for more in ([], ["--json"])
    ]
    assert [done.returncode for done in results] == [0, 0], results[0].stderr
    assert "Scientific Computing" in results[0].stdout.decode(encoding)
    assert json.loads(results[1].stdout.decode(encoding)) == load_system("hamburg").to_json()


def test_examples_are_not_wrapped_and_lists_not_truncated(cli: Callable[..., Result]) -> None:
    """Click wraps the text below the options at 80 columns and truncates the help of subcommands in lists."""
    shown = cli("compare", "--help").output
    assert "iowatch compare stack:netcdf-4.3.3.1 stack:netcdf-4.4.0,operation=write\n" in shown
    pages = [cli(*words, "--help").output for words in [(), *commands()]]
    lines = [line for page in pages for line in page.splitlines() if line.startswith("  ") and line.endswith("...")]
    assert [line for line in lines if line.strip() != "FILES..."] == []  # the usage of `iowatch import` has two lines


def test_examples_name_existing_systems() -> None:
    """An example copied from the help must not end with "no system"."""
    for words in commands():
        command = command_of(words)
        text = f"{command.epilog or ''} {command.help or ''}"
        for name in re.findall(r"--system (\S+)", text):
            assert name in [*system_names(), "S"], words


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_json_option_has_the_same_help_in_every_command(words: tuple[str, ...]) -> None:
    """One definition (iowatch.cli.common), one meaning: one document, nothing else."""
    found = [option for option in command_of(words).params if "--json" in option.opts]
    assert {option.help for option in found if isinstance(option, click.Option)} <= {JSON_HELP}


@pytest.mark.parametrize(
    ("before", "setting", "after"),
    [(0o022, None, 0o027), (0o002, None, 0o027), (0o077, None, 0o077), (0o022, "007", 0o007), (0o077, "0", 0)],
)
def test_new_files_are_for_the_group_only(
    before: int, setting: str | None, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if setting is not None:
        monkeypatch.setenv("IOWATCH_UMASK", setting)
    ours = os.umask(before)
    try:
        restrict_permissions()
        assert os.umask(before) == after
    finally:
        os.umask(ours)


def test_files_of_the_history_are_for_the_group_only(var: Path) -> None:
    output = Path(__file__).parent / "data" / "ior-4.0.0-smoke.json"
    words = ["import", "ior", str(output), "--system", "local", "--time", "2026-01-01"]
    program = "from iowatch.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    written = [var, *var.rglob("*")]
    assert len(written) > 3
    assert {path: oct(path.stat().st_mode) for path in written if path.stat().st_mode & 0o027} == {}


def test_invalid_umask_is_refused() -> None:
    program = "from iowatch.cli.main import main; main()"
    environment = {**os.environ, "IOWATCH_UMASK": "rw"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("iowatch: IOWATCH_UMASK is 'rw', expected an octal number")


def test_exit_code_does_not_depend_on_how_much_is_read() -> None:
    """`iowatch … | head -1`: the reader leaves after a line; the command still says that something is not in order."""
    program = (
        "import click\n"
        "from iowatch.cli import main\n"
        "@click.command()\n"
        "def command():\n"
        "    for number in range(100_000):\n"
        "        click.echo(f'finding {number}')\n"
        "    return 1\n"
        "main.iowatch = command\n"
        "main.main()\n"
    )
    words = [sys.executable, "-c", program]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"finding 0\n"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_systems_that_cannot_be_run_are_not_offered_to_run(var: Path) -> None:
    """`archer` is known from papers; its results can be listed, and no session can measure it."""

    def offered(*words: str) -> set[str]:
        completion = ShellComplete(iowatch, {}, "iowatch", "_IOWATCH_COMPLETE")
        return {str(item.value) for item in completion.get_completions([*words, "--system"], "")}

    assert "archer" not in offered("run")
    assert "local" in offered("run")
    assert {"archer", "local"} <= offered("reference", "show")
