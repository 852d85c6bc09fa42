"""MPI-IO hints: canonical form, what each MPI-IO is given, and hints that are not in force.

Keys are those of the ROMIO user guide ("Hints"). The printed lines were captured from MPICH 4.0.2, and from Open MPI
4.1.4 with OMPIO and with ROMIO 3.2.1, as the last test does with those that are installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from iowatch.benchmarks import hints, suites
from iowatch.benchmarks.benchio import BENCHIO
from iowatch.benchmarks.benchmark import Benchmark
from iowatch.benchmarks.h5bench import H5BENCH
from iowatch.benchmarks.ior import IOR
from iowatch.benchmarks.options import Options
from iowatch.benchmarks.parsing import RunContext
from iowatch.benchmarks.registry import parse_output
from iowatch.core import InputError, Scalar, describe_hints, format_hints, parse_hints
from tests.datasets import unpacked

FOUR = {"api": "mpiio", "ranks": 4}


def read(tool: Benchmark, **changed: Scalar) -> Options:
    """Options of four ranks with MPI-IO; h5bench has one interface only."""
    options = {name: value for name, value in FOUR.items() if name in tool.options}
    return tool.read_options({**options, **changed})


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("none", ""),
        ("cb=off", "cb=off"),
        ("cb_buffer_size=4m, cb=off", "cb=off+cb_buffer_size=4194304"),
        ("cb_buffer_size=4194304+cb=off", "cb=off+cb_buffer_size=4194304"),
        ("romio_cb_read=disable romio_cb_write=disable", "cb=off"),
        ("romio_ds_write=automatic,romio_ds_read=automatic", "ds=auto"),
        ("romio_cb_write=disable", "romio_cb_write=disable"),
        ("romio_cb_write=disable+romio_cb_read=enable", "romio_cb_read=enable+romio_cb_write=disable"),
    ],
)
def test_equal_hints_have_one_canonical_form(text: str, canonical: str) -> None:
    assert format_hints(parse_hints(text)) == canonical
    assert not canonical or format_hints(parse_hints(canonical)) == canonical


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("cb_node=2", "'cb_node=2' is not a hint, expected NAME=VALUE with one of cb, ds, cb_nodes, "),
        ("cb", "'cb' is not a hint"),
        ("", "'' is not a hint"),
        ("cb=maybe", "hint 'cb' cannot be 'maybe', expected off, on, auto"),
        ("cb_nodes=0", "hint 'cb_nodes' cannot be '0', expected an integer from 1 to 2147483647"),
        ("cb_nodes=1k", "hint 'cb_nodes' cannot be '1k'"),
        ("cb_buffer_size=2g", "hint 'cb_buffer_size' cannot be '2g', expected a size in bytes from 1 to"),
        ("striping_unit=x", "'x' is not a size"),
        ("cb=off+romio_cb_write=enable", "set romio_cb_write to disable and to enable"),
        ("cb_nodes=5", "cb_nodes=5 is more than the 4 ranks"),
    ],
)
@pytest.mark.parametrize("tool", ["benchio", "ior"])
def test_impossible_hints_are_refused_with_what_is_allowed(tool: str, text: str, reason: str) -> None:
    case = next(c for c in suites.load_suite("smoke") if c.benchmark == tool and c.options["api"] == "mpiio")
    with pytest.raises(InputError) as refused:
        suites.with_options(case, {"hints": text, "ranks": "4"})
    assert reason in refused.value.message
    assert "option 'hints'" in refused.value.message


def test_posix_takes_no_hints() -> None:
    case = next(c for c in suites.load_suite("smoke") if c.benchmark == "ior" and c.options["api"] == "posix")
    with pytest.raises(InputError, match="api posix takes no MPI-IO hints"):
        suites.with_options(case, {"hints": "cb=off"})


@pytest.mark.parametrize("tool", [BENCHIO, IOR, H5BENCH], ids=lambda tool: tool.name)
def test_case_without_hints_is_the_case_that_it_was(tool: suites.Benchmark) -> None:
    """An existing series keeps its key, and its command line."""
    unset, none = read(tool), read(tool, hints="none")
    for function in (tool.shows, tool.case, tool.environment, tool.requires, tool.configuration):
        assert function(none) == function(unset)
    assert "hints" not in {**tool.shows(unset), **tool.case(unset)}
    assert tool.environment(unset) == {}
    assert tool.arguments(none, "/s") == tool.arguments(unset, "/s")


def test_each_tool_is_given_the_hints_in_its_own_way() -> None:
    """benchio --hint, IOR `IOR_HINT__MPI__` (its user guide), h5bench the file of ROMIO_HINTS (ROMIO user guide)."""
    asked = "cb=off+cb_nodes=2"
    words = " ".join(BENCHIO.arguments(read(BENCHIO, hints=asked), "/s"))
    assert "--hint=romio_cb_write=disable --hint=romio_cb_read=disable --hint=cb_nodes=2" in words
    assert IOR.environment(read(IOR, hints=asked))["IOR_HINT__MPI__romio_cb_write"] == "disable"
    of_h5bench = read(H5BENCH, hints=asked)
    assert H5BENCH.configuration(of_h5bench)[H5BENCH.environment(of_h5bench)["ROMIO_HINTS"]].splitlines() == [
        "romio_cb_write disable",
        "romio_cb_read disable",
        "cb_nodes 2",
        "cb_config_list *:2",
    ]
    for tool in (BENCHIO, IOR, H5BENCH):
        options = read(tool, hints=asked)
        assert tool.environment(options)["OMPI_MCA_fcoll"] == "individual"
        assert {**tool.shows(options), **tool.case(options)}["hints"] == asked


@pytest.mark.parametrize(("nodes", "cb_nodes", "expected"), [(1, 1, None), (1, 4, "*:4"), (2, 3, "*:2"), (4, 4, None)])
def test_romio_may_place_several_aggregators_on_a_node(nodes: int, cb_nodes: int, expected: str | None) -> None:
    """ROMIO user guide: the default of cb_config_list is one aggregator per node."""
    info = hints.mpi_info(read(IOR, nodes=nodes, hints=f"cb_nodes={cb_nodes}"))
    assert info.get("cb_config_list") == expected


def test_cases_that_ompio_does_not_understand_need_romio() -> None:
    understood = ("cb=off", "cb_nodes=2", "cb_buffer_size=1m+cb=off")
    others = ("cb=on", "ds=off", "striping_factor=4", "cb_nodes=2+ds=on")
    for tool in (BENCHIO, IOR):
        assert not any("romio" in tool.requires(read(tool, hints=text)) for text in understood)
        assert all("romio" in tool.requires(read(tool, hints=text)) for text in others)
    # OMPIO reads no file of hints.
    assert all("romio" in H5BENCH.requires(read(H5BENCH, hints=text)) for text in (*understood, *others))


def test_info_of_a_record_has_the_parameter_of_the_suite() -> None:
    for text in ("cb=off+cb_nodes=4", "cb_buffer_size=1048576", "ds=off+striping_factor=4"):
        assert hints.parameter_of_info(hints.mpi_info(read(IOR, hints=text))) == text
    assert hints.parameter_of_info({"made_up": "1", "romio_cb_write": "enable"}) == "made_up=1+romio_cb_write=enable"
    assert hints.parameter_of_info({}) is None


# ROMIO_PRINT_HINTS=1, MPICH 4.0.2; the lines of two files.
ROMIO = """\
key = cb_buffer_size            value = 1048576   \n\
key = romio_cb_read             value = automatic \n\
key = romio_cb_write            value = disable   \n\
key = cb_nodes                  value = 1         \n\
key = romio_filesystem_type     value = UFS: Generic ROMIO driver for all UNIX-like file systems\n"""
# OMPI_MCA_io_ompio_verbose_info_parsing=1, Open MPI 4.1.4
OMPIO = """\
File: /scratch/a b/data.000000 info: cb_nodes value 2 \n\
File: /scratch/a b/data.000000 info: collective_buffering value false \n"""


@pytest.mark.parametrize(
    ("asked", "printed", "reasons"),
    [
        ("cb_buffer_size=1m", ROMIO, []),
        ("cb_nodes=1+romio_cb_write=disable", ROMIO, []),
        ("cb_nodes=2", ROMIO, ["hint cb_nodes=2 is not in force: ROMIO has cb_nodes 1"]),
        ("cb=off", ROMIO, ["hint cb=off is not in force: ROMIO has romio_cb_read automatic"]),
        ("striping_factor=4", ROMIO, ["hint striping_factor=4 is not in force: ROMIO has no striping_factor"]),
        (
            "cb_nodes=1",
            ROMIO + ROMIO.replace("value = 1 ", "value = 4 "),
            ["hint cb_nodes=1 is not in force: ROMIO has cb_nodes 1 and 4"],
        ),
        ("cb_nodes=4", ROMIO + ROMIO.replace("value = 1 ", "value = 4 "), []),  # one file opened by one process
        ("cb=off+cb_nodes=2", OMPIO, []),
        ("cb_nodes=3", OMPIO, ["hint cb_nodes=3 is not in force: OMPIO has cb_nodes 2"]),
        ("cb_buffer_size=1m", OMPIO, ["hint cb_buffer_size=1048576 is not in force: OMPIO has no cb_buffer_size"]),
        ("ds=off", OMPIO, ["hint ds=off is not in force: OMPIO does not understand it"]),
        ("cb=off", "", ["hint cb=off may not be in force: the MPI printed no hints"]),
    ],
)
def test_hint_that_is_not_in_force_is_reported(asked: str, printed: str, reasons: list[str]) -> None:
    found = hints.read_hints(printed.splitlines())
    assert hints.hints_not_in_force(read(IOR, hints=asked), found) == reasons


def test_hints_of_an_open_file_are_used_where_nothing_is_printed() -> None:
    found = hints.read_hints([], {"romio_cb_write": "disable", "romio_cb_read": "disable"})
    assert hints.hints_not_in_force(read(IOR, hints="cb=off"), found) == []


# `--mpiio.showHints` of IOR 4.0.0; the second file has what MPICH returns.
PASSED = "hints passed to MPI_File_open() {\n\tcb_nodes = 2\n\tromio_cb_write = disable\n\tromio_cb_read = disable\n}\n"
RETURNED = (
    "hints returned from opened file {\n\tcb_nodes = 1\n\tromio_cb_write = disable\n\tromio_cb_read = disable\n}\n"
)


@pytest.mark.parametrize(
    ("option", "shown", "parameter"),
    [
        ("", "", None),
        (" --mpiio.showHints", PASSED, "cb=off+cb_nodes=2"),
        (" --mpiio.showHints", PASSED + RETURNED, "cb=off"),
        (" --mpiio.hintsFileName=mine", "", "unknown"),
        (" --mpiio.hintsFileName=mine --mpiio.showHints", PASSED, "cb=off+cb_nodes=2"),
    ],
)
def test_hints_that_ior_printed_are_those_of_the_case(option: str, shown: str, parameter: str | None) -> None:
    text = (unpacked("captured") / "ior/4.0.0/mpiio_shared_coll_np4/stdout").read_text()
    command = next(line for line in text.splitlines() if line.startswith("Command line"))
    row = next(line for line in text.splitlines() if line.startswith("write "))
    output = parse_output("ior", text.replace(command, command + option).replace(row, shown + row), RunContext())
    assert output.status == "ok"
    assert {result.case.get("hints") for result in output.results} == {parameter}


def test_contradicting_hints_of_ior_are_damage() -> None:
    text = (unpacked("captured") / "ior/4.0.0/mpiio_shared_coll_np4/stdout").read_text()
    row = next(line for line in text.splitlines() if line.startswith("write "))
    shown = PASSED + PASSED.replace("cb_nodes = 2", "cb_nodes = 7")
    assert parse_output("ior", text.replace(row, shown + row), RunContext()).status == "incomplete"


def test_hints_in_words() -> None:
    words = "collective buffering off, collective buffer 4 MiB, 2 aggregators"
    assert describe_hints("cb=off+cb_buffer_size=4194304+cb_nodes=2") == words


PROGRAM = r"""#include <mpi.h>
int main(int argc, char **argv) {
    MPI_Info info; MPI_File file; char data[4096] = {0}; int rank;
    MPI_Init(&argc, &argv); MPI_Comm_rank(MPI_COMM_WORLD, &rank); MPI_Info_create(&info);
    for (int i = 2; i + 1 < argc; i += 2) MPI_Info_set(info, argv[i], argv[i + 1]);
    int mode = MPI_MODE_CREATE | MPI_MODE_RDWR;
    if (MPI_File_open(MPI_COMM_WORLD, argv[1], mode, info, &file)) MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_File_write_at_all(file, 4096 * rank, data, 4096, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_File_close(&file); MPI_Info_free(&info); return MPI_Finalize();
}
"""
# Understood by both; by ROMIO only; by no file system without stripes.
ASKED = ("cb=off+cb_nodes=2+cb_buffer_size=1m", "cb=on+ds=off", "striping_factor=4")


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("mpi", "io", "in_force"),
    [
        ("mpich", {}, {ASKED[0]: True, ASKED[1]: True, ASKED[2]: False}),
        ("openmpi", {"OMPI_MCA_io": "romio321"}, {ASKED[0]: True, ASKED[1]: True, ASKED[2]: False}),
        ("openmpi", {"OMPI_MCA_io": "ompio"}, {ASKED[0]: True, ASKED[1]: False, ASKED[2]: False}),
    ],
    ids=["mpich", "openmpi-romio", "openmpi-ompio"],
)
def test_installed_mpi_reports_the_hints_that_it_uses(
    mpi: str, io: dict[str, str], in_force: dict[str, bool], tmp_path: Path
) -> None:
    compiler, launcher = (shutil.which(f"{name}.{mpi}") for name in ("mpicc", "mpirun"))
    if not (compiler and launcher):
        pytest.skip(f"needs Debian's {mpi}")
    (tmp_path / "hints.c").write_text(PROGRAM)
    subprocess.run([compiler, "-o", tmp_path / "hints", tmp_path / "hints.c"], check=True, timeout=60)
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    for asked, expected in in_force.items():
        options = IOR.read_options({"api": "mpiio", "ranks": 2, "hints": asked})
        info = [word for pair in hints.mpi_info(options).items() for word in pair]
        environment = {**os.environ, **root, **io, **hints.job_environment(options)}
        words = [*(["--oversubscribe"] if mpi == "openmpi" else []), "-n", "2", tmp_path / "hints", tmp_path / "data"]
        done = subprocess.run(
            [launcher, *words, *info], env=environment, capture_output=True, text=True, timeout=60, check=True
        )
        found = hints.read_hints((done.stdout + done.stderr).splitlines())
        assert (hints.hints_not_in_force(options, found) == []) is expected, (asked, found)
