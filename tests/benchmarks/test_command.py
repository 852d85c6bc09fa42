"""Commands of a suite: definition, job script, record, and numbers of the output."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from iowatch.benchmarks.command import COMMAND, find_command
from iowatch.benchmarks.command_metrics import MetricSearch, ValueMissingError, read_value
from iowatch.benchmarks.command_record import DEFINITION_FILE, SCRIPT_FILE
from iowatch.benchmarks.parsing import RunContext
from iowatch.benchmarks.registry import BENCHMARKS, parse_output
from iowatch.benchmarks.suites import SuiteCase, read_suite_file
from iowatch.core import InputError, Output
from tests.conftest import ROOT

HEAD = "format: 1\nsummary: any\ncommands:\n"


def suite_file(directory: Path, commands: str, matrix: str = "  - {}") -> Path:
    """A suite of the site with these commands, which are indented by two blanks."""
    path = directory / "suites" / "command" / "any.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{HEAD}{commands}\nmatrix:\n{matrix}\n", encoding="utf-8")
    return path


def only_case(directory: Path, commands: str, matrix: str = "  - {repeat: 1}") -> SuiteCase:
    (case,) = read_suite_file(suite_file(directory, commands, matrix))
    return case


def printed(directory: Path, case: SuiteCase, **variables: str) -> str:
    """What the job of a case prints: the script as a launcher starts it, with the program and its arguments."""
    scratch = directory / "scratch"
    scratch.mkdir(exist_ok=True)
    for name, content in COMMAND.configuration(case.options).items():
        (directory / name).write_text(content, encoding="utf-8")
    program = COMMAND.program(case.options)
    words = [*COMMAND.wrapper(case.options, str(scratch)), program]
    words += [program, *COMMAND.arguments(case.options, str(scratch))]
    environment = {"PATH": "/usr/bin:/bin", **variables}
    done = subprocess.run(words, cwd=directory, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


def measured(directory: Path, commands: str) -> Output:
    case = only_case(directory, commands)
    return parse_output("command", printed(directory, case), RunContext(rc=0, ranks=1, fresh=True))


def samples(output: Output) -> dict[str, tuple[float, ...]]:
    return {f"{result.operation} {result.metric}": result.samples for result in output.results}


# --- the whole way of an output --------------------------------------------------------------------------------------


def test_wall_time_is_that_of_the_program(tmp_path: Path) -> None:
    """`sleep` takes the time that it is given; the script adds no start of a shell to it."""
    output = measured(tmp_path, "  nap: {program: sleep, arguments: ['0.2']}")
    assert output.status == "ok"
    (seconds,) = samples(output)["run time"]
    assert 0.2 <= seconds < 2.0


def test_numbers_of_output_error_and_json_are_converted(tmp_path: Path) -> None:
    """10 MB/s are 10^7 / 2^20 MiB/s, 250 ms a quarter of a second, 3 KiB 3,072 bytes."""
    text = 'echo "copied at 10 MB/s"; echo "took 250 ms" >&2; echo "{\\"size\\": [1, 3]}"'
    output = measured(
        tmp_path,
        f"""\
  copy:
    program: sh
    arguments: [-c, '{text}']
    time: false
    metrics:
      copy: {{pattern: 'at ([0-9.]+) MB', unit: MB/s}}
      phase: {{pattern: 'took (?P<value>[0-9]+) (ms)', unit: ms}}
      output: {{json: 'size[*]', take: largest, unit: KiB}}
      score: {{json: 'size[0]', unit: 1, direction: higher}}""",
    )
    assert output.reason is None
    assert samples(output) == {
        "copy bandwidth": (pytest.approx(1e7 / 2**20),),
        "phase time": (0.25,),
        "output size": (3072.0,),
        "score number_higher": (1.0,),
    }


def test_numbers_of_a_result_file(tmp_path: Path) -> None:
    output = measured(
        tmp_path,
        """\
  report:
    program: sh
    arguments: [-c, 'echo 1 1/s; echo 7 1/s > {scratch}/result']
    output_file: "{scratch}/result"
    metrics:
      work: {pattern: '([0-9]+) 1/s', unit: 1/s}""",
    )
    assert samples(output)["work rate"] == (7.0,)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (
            "{program: no-such-program}",
            "program 'no-such-program' is not on the PATH of the stack; expected in one of /",
        ),
        (
            "{program: sh, arguments: [-c, 'echo good; echo broken >&2; exit 3']}",
            "exit status 3, expected 0; its last line is 'broken'",
        ),
        ("{program: 'true', exit_status: 2}", "exit status 0, expected 2; its last line is 'nothing'"),
        (
            "{program: echo, arguments: [speed 5], metrics: {a: {pattern: 'rate (.+)', unit: 1/s}}}",
            "metric 'a': pattern 'rate (.+)' matches nothing in the output; searched was 'speed 5'",
        ),
        (
            "{program: echo, arguments: [rate nan], metrics: {a: {pattern: 'rate (.+)', unit: 1/s}}}",
            "gives 'nan'; expected a finite number above 0",
        ),
        ("{program: echo, arguments: [rate -5], metrics: {a: {pattern: 'rate (.+)', unit: 1/s}}}", "gives '-5'"),
        ("{program: echo, arguments: [rate 0], metrics: {a: {pattern: 'rate (.+)', unit: 1/s}}}", "gives '0'"),
        (
            "{program: printf, arguments: ['rate 1\\nrate 2\\n'], metrics: {a: {pattern: 'rate (.+)', unit: 1/s}}}",
            "matches 2 times, first '1' and '2'; expected once, or 'take: first | last",
        ),
        (
            '{program: echo, arguments: [\'{"a": {"b": 1}}\'], metrics: {a: {json: a.c, unit: 1/s}}}',
            "JSON path 'a.c': a has no .c; it has b",
        ),
        (
            "{program: echo, arguments: [words], metrics: {a: {json: a, unit: 1/s}}}",
            "no JSON document in the output; searched was 'words'",
        ),
    ],
)
def test_run_that_is_not_the_requested_one_fails_without_results(tmp_path: Path, command: str, reason: str) -> None:
    output = measured(tmp_path, f"  any: {command}")
    assert (output.status, output.results) == ("failed", ())
    assert reason in str(output.reason)


def test_program_of_another_benchmark_is_a_command_as_any(tmp_path: Path) -> None:
    """The line begins the outputs of IOR, and is a failure in those of other benchmarks."""
    line = "IOR-4.0.0: MPI Coordinated Test of Parallel I/O"
    assert re.search(BENCHMARKS["ior"].banner, line)
    output = measured(tmp_path, f"  any: {{program: echo, arguments: ['{line}']}}")
    assert (output.status, output.reason) == ("ok", None)


def test_expected_exit_status_is_no_failure(tmp_path: Path) -> None:
    output = measured(tmp_path, "  any: {program: sh, arguments: [-c, exit 3], exit_status: 3}")
    assert (output.status, output.facts["exit_status"]) == ("ok", 3)


def test_output_is_printed_before_the_record_and_complete_in_it(tmp_path: Path) -> None:
    case = only_case(tmp_path, "  any: {program: printf, arguments: ['one\\ntwo']}")
    first, second, third, *record = printed(tmp_path, case).splitlines()
    assert (first, second, third) == ("iowatch-command/1 any", "one", "two")
    assert record[0].startswith("definition {")
    assert "stdout 7 .b25lCnR3bw==" in record


def test_other_ranks_than_the_first_print_no_record(tmp_path: Path) -> None:
    case = only_case(tmp_path, "  any: {program: echo, arguments: [hello]}")
    assert printed(tmp_path, case, OMPI_COMM_WORLD_RANK="1") == ""
    assert "hello" in printed(tmp_path, case, OMPI_COMM_WORLD_RANK="0")


def test_changed_or_truncated_record_has_no_result(tmp_path: Path) -> None:
    case = only_case(tmp_path, "  any: {program: echo, arguments: [rate 5], metrics: {a: {pattern: '(5)', unit: 1/s}}}")
    text = printed(tmp_path, case)
    assert samples(parse_output("command", text, RunContext()))["a rate"] == (5.0,)
    changed = parse_output("command", re.sub(r"(times \d+\.)\d", r"\g<1>x", text), RunContext())
    assert (changed.status, changed.results) == ("incomplete", ())
    for unit in ("s", "1"):
        other = text.replace('"unit": "1/s"', f'"unit": "{unit}"')
        assert "does not agree with its digest" in str(parse_output("command", other, RunContext()).reason)
    truncated = parse_output("command", text[: text.index("end ")], RunContext())
    assert "ends before its record" in str(truncated.reason)
    twice = parse_output("command", text + text, RunContext())
    assert (twice.status, twice.results) == ("failed", ())


def test_number_beyond_the_searched_end_is_explained(tmp_path: Path) -> None:
    output = measured(
        tmp_path,
        """\
  any:
    program: sh
    arguments: [-c, 'echo rate 5; head -c 1100000 /dev/zero | tr "\\0" x']
    metrics: {a: {pattern: 'rate (.+)', unit: 1/s}}""",
    )
    assert "only the last 1048576 bytes of stdout are searched" in str(output.reason)


# --- numbers of a text -----------------------------------------------------------------------------------------------


def search(**fields: Any) -> MetricSearch:
    return MetricSearch(
        **{"name": "a", "metric": "rate", "unit": "1/s", "pattern": None, "path": None, "take": None} | fields
    )


@pytest.mark.parametrize(
    ("take", "value"), [("first", 4.0), ("last", 2.0), ("least", 1.0), ("largest", 4.0), ("median", 2.0), ("sum", 7.0)]
)
def test_one_of_several_numbers_is_taken(take: str, value: float) -> None:
    assert read_value(search(pattern="(.+) ops", take=take), "4 ops\n1 ops\n2 ops\n", "") == value
    assert read_value(search(path="a[*].b", take=take), "", '[1\n{"a": [{"b": 4}, {"b": 1}, {"b": "2"}]}') == value


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("b", "the document has no .b; it has a, c"),
        ("a[2]", "a has no [2]; it has 2 entries"),
        ("a.b", "a has no .b; it has 2 entries"),
        ("c", "gives 'true'; expected a finite number above 0"),
        ("a", "gives '[1, 2]'"),
    ],
)
def test_path_that_leads_nowhere_says_what_is_there(path: str, message: str) -> None:
    with pytest.raises(ValueMissingError, match=re.escape(message)):
        read_value(search(path=path), "", '{"a": [1, 2], "c": true}')


# --- definitions of a suite ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("{program: cat, argument: [a]}", "any.yaml:4:23: field 'commands.any.argument': unknown field. Did you"),
        ("{arguments: [a]}", "field 'commands.any.program'"),
        ("{program: cat, metrics: {a: {pattern: '([', unit: s}}}", "regular expression: unterminated character set"),
        ("{program: cat, metrics: {a: {pattern: 'a', unit: s}}}", "0 groups in parentheses; expected one"),
        ("{program: cat, metrics: {a: {pattern: '(a)(b)', unit: s}}}", "2 groups in parentheses"),
        ("{program: cat, metrics: {a: {json: 'a..b', unit: s}}}", "not a JSON path; expected for example"),
        ("{program: cat, metrics: {a: {json: a, unit: furlong}}}", "unknown unit 'furlong'. Expected MiB/s"),
        ("{program: cat, metrics: {a: {json: a, unit: 1}}}", "unit '1' says nothing about what is better"),
        ("{program: cat, metrics: {a: {json: a, unit: s, direction: higher}}}", "of a value in s lower is better"),
        ("{program: cat, metrics: {a: {json: a, pattern: (a), unit: s}}}", "expected one of 'pattern' and 'json'"),
        ("{program: cat, metrics: {a: {unit: s}}}", "expected one of 'pattern' and 'json'"),
        ("{program: cat, metrics: {run: {json: a, unit: s}}}", "'run' is the result with the program's wall time"),
        ("{program: cat, metrics: {a: {json: a, unit: s}, a: {json: b, unit: s}}}", "key 'a' occurs twice"),
        ("{program: cat, metrics: {A b: {json: a, unit: s}}}", "expected a name of at most 40 small letters"),
        ("{program: '{scratch}/a'}", "the scratch directory has no program before the run"),
        ("{program: cat, time: false}", "nothing is measured"),
        ("{program: cat, arguments: ['{level}']}", "'{level}': no parameter 'level'. Known: scratch, directory."),
        ("{program: cat, parameters: {scratch: 1}}", "the name has a meaning of its own"),
        ("{program: cat, remove: [/tmp/a]}", "expected a path in the scratch directory, '{scratch}/NAME'"),
        ("{program: cat, remove: ['{scratch}/../a']}", "expected a path in the scratch directory"),
        ("{program: cat, environment: {A: '{scratch}'}}", "a variable cannot name the scratch directory"),
        ("{program: cat, scratch_bytes: many}", "'many' is not a size"),
        ("{program: cat, exit_status: 300}", "field 'commands.any.exit_status'"),
    ],
)
def test_fault_of_a_definition_is_reported(tmp_path: Path, command: str, message: str) -> None:
    with pytest.raises(InputError) as raised:
        read_suite_file(suite_file(tmp_path, f"  any: {command}"))
    assert message in raised.value.message
    assert "any.yaml:4:" in raised.value.message


def test_faults_of_all_commands_are_reported_together(tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        read_suite_file(suite_file(tmp_path, "  a: {}\n  b: {program: cat, x: 1}\n  C: {program: cat}"))
    assert [line.partition(": field ")[2][:12] for line in raised.value.message.splitlines()] == [
        "'commands.a.",
        "'commands.b.",
        "'commands': ",
    ]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{command: other}", "the suite defines no command 'other'. Known: any, second."),
        ("{}", "expected the name of a command. Known: any, second."),
        ("{command: any, set: size=1}", "'size=1': expected NAME=VALUE of a parameter of the command (level)"),
        ("{command: any, set: level}", "'level': expected NAME=VALUE"),
        ("{command: any, set: level=1+level=2}", "parameter 'level' is set twice"),
        ("{command: any, sets: level=1}", "command has no option 'sets'. Did you mean 'set'?"),
    ],
)
def test_fault_of_a_case_is_reported(tmp_path: Path, entry: str, message: str) -> None:
    commands = "  any: {program: cat, parameters: {level: 1}}\n  second: {program: cat}"
    with pytest.raises(InputError, match=re.escape(message)):
        read_suite_file(suite_file(tmp_path, commands, f"  - {entry}"))


def test_other_benchmarks_define_no_commands(tmp_path: Path) -> None:
    path = tmp_path / "suites" / "fio" / "any.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(f"{HEAD}  any: {{program: cat}}\nmatrix:\n  - {{}}\n")
    with pytest.raises(InputError, match=r"any.yaml:3:1: field 'commands': a suite of fio defines none"):
        read_suite_file(path)


COPY = """\
  copy:
    program: cp
    arguments: ["{directory}/input", "{scratch}/{name}", "{{name}}"]
    parameters: {name: out}
    prepare: [[touch, "{scratch}/a"]]
    remove: ["{scratch}/{name}", "{scratch}/b c"]
    environment: {LEVEL: "{name}"}
    requires: [netcdf4]
    scratch_bytes: 2m
    volume_bytes: 3m
    metrics: {a: {json: a, unit: ms}}"""


def test_placeholders_are_replaced_in_all_words(tmp_path: Path) -> None:
    case = only_case(tmp_path, COPY, "  - {set: name=data, repeat: 2}")
    directory = tmp_path / "suites" / "command"
    assert COMMAND.arguments(case.options, "/s") == [f"{directory}/input", "/s/data", "{name}"]
    assert COMMAND.prepare(case.options, "/s") == [["touch", "/s/a"]]
    assert COMMAND.before(case.options, "/s") == "rm -rf -- /s/data '/s/b c'"
    assert COMMAND.environment(case.options) == {"LEVEL": "data"}
    assert case.requires == ("mpi", "netcdf4")
    assert case.expects == (("a", "time"), ("run", "time"))
    assert (COMMAND.file_bytes(case.options), COMMAND.volume_bytes(case.options)) == (2 << 20, 6 << 20)


def test_nothing_outside_the_scratch_directory_is_removed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"option 'set' of command: 'remove': scratch/\.\./a is not in the scratch"):
        only_case(tmp_path, COPY, "  - {set: name=../a}")


def test_several_ranks_prepare_once(tmp_path: Path) -> None:
    case = only_case(tmp_path, COPY, "  - {ranks: 2}")
    assert COMMAND.prepare(case.options, "/s") == [["bash", SCRIPT_FILE, "prepare", "touch", "/s/a"]]


def test_definition_identifies_what_is_executed(tmp_path: Path) -> None:
    """Another argument or other input begins a new series, another number of the same run does not."""
    (tmp_path / "suites" / "command").mkdir(parents=True)
    (tmp_path / "suites" / "command" / "input").write_text("one")
    first = find_command(only_case(tmp_path, COPY).options).digest()
    assert find_command(only_case(tmp_path, COPY.replace("json: a", "json: b")).options).digest() == first
    assert find_command(only_case(tmp_path, COPY.replace("name: out", "name: other")).options).digest() != first
    (tmp_path / "suites" / "command" / "input").write_text("two")
    assert find_command(only_case(tmp_path, COPY).options).digest() != first


def test_names_of_cases_have_command_and_parameters(tmp_path: Path) -> None:
    commands = "  any: {program: cat, parameters: {level: 1}}\n  second: {program: cat}"
    matrix = "  - {command: any, set: [level=1, level=6]}\n  - {command: second}"
    cases = read_suite_file(suite_file(tmp_path, commands, matrix))
    assert [case.run_name for case in cases] == [
        "command:command=any,set=level=1",
        "command:command=any,set=level=6",
        "command:command=second",
    ]


def test_record_has_the_parameters_that_the_suite_asks_for(tmp_path: Path) -> None:
    case = only_case(tmp_path, "  any: {program: 'true'}")
    (result,) = parse_output("command", printed(tmp_path, case), RunContext()).results
    assert dict(result.case) == dict(COMMAND.shows(case.options))
    assert json.loads((tmp_path / DEFINITION_FILE).read_text())["case"] == dict(result.case)


def test_examples_of_the_documentation_are_valid(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    suite, metrics = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    path = tmp_path / "suites" / "command" / "copy.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(suite.replace("    requires: [netcdf4]\n", f"    requires: [netcdf4]\n{metrics}", 1))
    compress, *_ = read_suite_file(path)
    assert compress.expects == (("throughput", "bandwidth"), ("output", "size"), ("run", "time"))
