"""Outputs of IOR as sites have them: all interfaces, old and development versions, IOR as part of another program.

Files of tests/benchmarks/data were printed by IOR 4.0.0 (2 ranks); the others are changed as the named version prints.
"""

from __future__ import annotations

import pytest

from iowatch.benchmarks.ior_command import IorCommand, parse_ior_size
from iowatch.benchmarks.parsing import RunContext
from iowatch.benchmarks.registry import parse_output
from iowatch.core import Output
from tests.benchmarks.corpus import DATA

MMAP = (DATA / "ior-4.0.0-mmap.txt").read_text()
PART = (DATA / "ior-4.0.0-part-of-a-program.txt").read_text()
TWICE = (DATA / "ior-4.0.0-options-twice.txt").read_text()


def _parse(text: str, rc: int | None = None, fresh: bool = False) -> Output:
    return parse_output("ior", text, RunContext(rc=rc, fresh=fresh))


def _bandwidths(output: Output, operation: str = "write") -> tuple[float, ...]:
    return next(r.samples for r in output.results if (r.operation, r.metric) == (operation, "bandwidth"))


def _interface(name: str, options: str = "") -> str:
    """The MMAP output as another interface prints it."""
    text = MMAP.replace("--mmap.madv_dont_need", options).replace("-a MMAP", f"-a {name}")
    return text.replace("api                 : MMAP", f"api                 : {name}").replace(
        " MMAP      0", f" {name} 0"
    )


@pytest.mark.parametrize("name", ["DFS", "CEPHFS", "RADOS", "AIO", "LIBNFS", "S3-libs3", "CHFS", "GFARM", "NEW"])
def test_interface_is_what_the_command_line_names(name: str) -> None:
    output = _parse(_interface(name))
    assert (output.status, output.reason) == ("ok", None)
    assert output.results[0].case["api"] == name.upper()
    assert _bandwidths(output) == (839.55, 327.71)


def test_options_of_an_interface_may_be_any_and_ways_are_part_of_the_case() -> None:
    options = "--dfs.pool=p1 --dfs.cont c1 --dfs.svcl=1 --dfs.new=3 --dfs.oclass=SX --dfs.chunk_size=1m --dfs.destroy"
    output = _parse(_interface("DFS", options))
    assert (output.status, output.reason) == ("ok", None)
    assert output.results[0].case["mode"] == "dfs.chunk_size=1048576,dfs.oclass=SX"


def test_secrets_of_an_interface_are_not_stored() -> None:
    output = _parse(
        _interface("S3-libs3", "--S3-libs3.host=h --S3-libs3.secret-key=geheim --S3-libs3.access-key=geheim")
    )
    assert output.status == "ok"
    assert "geheim" not in repr(output)


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("--mmap.madv_dont_need", "--mmap.madv_dont_nee", "--mmap.madv_dont_nee"),
        ("--mmap.madv_dont_need", "--dfs.pool=p", "--dfs.pool"),
        ("-a MMAP", "-a MAP", "the interface is 'MMAP'"),
        ("-t 1m", "-t 2m", "xfersize"),
        ("tasks               : 2", "tasks               : 3", "tasks"),
        ("aggregate filesize  : 8 MiB", "aggregate filesize  : 9 MiB", "aggregate filesize"),
        ("ordering in a file  : sequential\n", "", "ordering in a file"),
        ("nodes               : 1\n", "", "nodes"),
        ("type                : independent", "type                : collective", "type"),
        ("-w -r", "-w stray -r", "'stray'"),
        ("-w -r", "-w -r -D 3", "stonewallingTime"),
        ("4096       1024.00    0.000084", "4097       1024.00    0.000084", "block(KiB)"),
    ],
)
def test_reason_names_the_field(old: str, new: str, field: str) -> None:
    output = _parse(MMAP.replace(old, new))
    assert (output.status, output.results) == ("incomplete", ())
    assert field in str(output.reason)


def test_development_version_without_nodes_is_read() -> None:
    text = TWICE.replace("IOR-4.0.0", "IOR-3.3.0+dev").replace("nodes               : 1\n", "")
    assert _parse(text).results[0].case["nodes"] == 1


def test_options_that_are_given_twice_count_once() -> None:
    """-C -C suppresses `ordering inter file`, -F -F is 2 in the summary and lets IOR take the size of one file."""
    output = _parse(TWICE)
    assert (output.status, output.reason) == ("ok", None)
    assert _bandwidths(output) == (5707.0, 5689.0)
    case = output.results[0].case
    assert (case["file"], case["reorder"], case["sync"]) == ("per-process", "constant", True)
    assert (case["transfer_bytes"], case["block_bytes"]) == (512 << 10, 2 << 20)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512kb", 512 << 10),
        ("1mb", 1 << 20),
        ("4MiB", 4 << 20),
        ("256gm", 256 << 30),
        ("2t", 2 << 40),
        ("47008", 47008),
    ],
)
def test_sizes_are_read_as_ior_reads_them(text: str, size: int) -> None:
    """`string_to_bytes` of `option.c`: a number and one letter, powers of 1024."""
    assert parse_ior_size(text) == size


# As 3.0.1 prints it (`ShowSetup`, `PPDouble`): 64 tasks with 1,024 x 16 GiB / 64 = 256 GiB each; 16 TiB in 1,000 s.
OLD_FORM = """IOR-3.0.1: MPI Coordinated Test of Parallel I/O

Began: Mon Nov  2 14:54:05 2026
Command line used: ior {options} -t 4m -b 256g -w -e -D 2000 -o /scratch/f
Machine: Linux n1

Test 0 started: Mon Nov  2 14:54:05 2026
Summary:
\tapi                = {api}
\ttest filename      = /scratch/f
\taccess             = single-shared-file
\tordering in a file = sequential offsets
\tordering inter file= no tasks offsets
\tclients            = 64 (16 per node)
\trepetitions        = 1
\txfersize           = 4 MiB
\tblocksize          = 256 GiB
\taggregate filesize = 16384 GiB
\tUsing stonewalling = 2000 second(s)

access    bw(MiB/s)  block(KiB) xfer(KiB)  open(s)    wr/rd(s)   close(s)   total(s)   iter
------    ---------  ---------- ---------  --------   --------   --------   --------   ----
write     16777      268435456  4096       0.106599   999.89     0.000947   1000.00    0

Max Write: 16777.22 MiB/sec (17592.19 MB/sec)

Summary of all tests:
Operation   Max(MiB)   Min(MiB)  Mean(MiB)     StdDev    Mean(s) Test# #Tasks tPN reps fPP reord reordoff reordrand \
seed segcnt blksiz xsize aggsize API RefNum
write        16777.22   16777.22   16777.22       0.00  1000.00000 0 64 16 1 0 0 1 0 0 1 274877906944 4194304 \
17592186044416 {api} 0

Finished: Mon Nov  2 15:00:05 2026
"""


@pytest.mark.parametrize(
    ("options", "printed", "api"),
    [
        ("-a POSIX", "POSIX", "POSIX"),
        ("-a HDF5", "HDF5-1.8.14 (Parallel)", "HDF5"),
        ("-a MPIIO", "MPIIO (version=3, subversion=0)", "MPIIO"),
        ("", "MPIIO (version=3, subversion=0)", "MPIIO"),  # IOR was built without POSIX
        ("-a NCMPI", "NCMPI (version 1.3.1 of 24 Sep 2012)", "PNETCDF"),
    ],
)
def test_version_3_0_counts_in_gib_and_adds_the_version_of_the_library(options: str, printed: str, api: str) -> None:
    output = _parse(OLD_FORM.format(options=options, api=printed), rc=0)
    assert (output.status, output.reason) == ("ok", None)
    assert _bandwidths(output) == (16777.0,)
    case = output.results[0].case
    assert (case["api"], case["total_bytes"], case["nodes"], case["stonewall_s"]) == (api, 16 << 40, 4, 2000)


def test_other_interface_than_requested_is_refused() -> None:
    output = _parse(OLD_FORM.format(options="-a POSIX", api="MPIIO (version=3, subversion=0)"))
    assert (output.status, output.results) == ("incomplete", ())
    assert "the interface is 'MPIIO (version=3, subversion=0)'" in str(output.reason)


def test_rows_of_ior_within_another_program_are_results() -> None:
    output = _parse(PART, rc=0)
    assert (output.status, output.reason) == ("ok", None)
    assert _bandwidths(output) == (369.65,)
    assert str(output.facts["summary"]).startswith("none")


def test_session_expects_the_summary() -> None:
    """A session starts the program `ior`, which prints one."""
    output = _parse(PART, rc=0, fresh=True)
    assert output.status == "incomplete"
    assert "'Finished'" in str(output.reason)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("repetitions         : 1", "repetitions         : 2"),  # rows are missing
        (" -F -w", " -F -w -r"),  # the read is missing
        ("moved = 505413632", "moved = 515413632"),  # rate x time is something else
        ("369.65 ", "379.65 "),
        ("1.30       0   \n", "1.30       0"),  # cut within the line
        ("WARNING: Using actual aggregate bytes moved = 505413632\n", ""),
    ],
)
def test_rows_without_a_summary_must_be_complete(old: str, new: str) -> None:
    text = PART.replace(old, new)
    assert text != PART
    assert _parse(text, rc=0).status != "ok"


def test_rows_without_a_summary_need_digits() -> None:
    """60 us have a resolution of 1.7 %, and nothing else confirms the bandwidth."""
    row = (
        "write     33333      40000      0.000000    10158080000 1024.00    "
        "0.000001   0.000050   0.000004   0.000060   0   \n"
    )
    text = PART[: PART.index("write     ")].replace("505413632", "2097152") + row
    output = _parse(text)
    assert (output.status, output.results) == ("incomplete", ())
    assert "few digits" in str(output.reason)


def test_file_that_is_shorter_than_what_was_written_is_a_failure() -> None:
    text = PART.replace(
        "Stat() of aggregate file size      = 505413632", "Stat() of aggregate file size      = 405413632"
    )
    assert _parse(text).reason == "the file has 405413632 bytes but 505413632 were transferred"
    # The size is the smallest that a task sees.
    differing = text.replace(
        "WARNING: Expected", "WARNING: inconsistent file size by different tasks.\nWARNING: Expected"
    )
    assert _parse(differing).status == "ok"


@pytest.mark.parametrize(
    "note",
    [
        'srun: error: Ignoring conflicting option "x11" in plugin "x11"',
        "srun: error: SLURMD_DEBUG=verbose invalid. ignoring...",
        "slurmstepd: error: TMPDIR [/scratch/x] is not writeable",
        "[n1:1] mca: base: component_find: unable to open /o/mca_btl_openib: ibverbs.so.1: cannot open shared object",
        "[n1:1] mca_base_component_repository_open: unable to open mca_plm_tm: libpbs.so.0: cannot open shared object "
        "file: No such file or directory (ignored)",
        "[n1:1] [[18045,0],0] ORTE_ERROR_LOG: Out of resource in file util/show_help.c at line 501",
        "libibverbs: Warning: couldn't load driver 'x': libx.so: cannot open shared object file: No such file",
        "ERROR: ld.so: object 'x.so' from LD_PRELOAD cannot be preloaded (cannot open shared object file): ignored.",
        "WARNING: Task 38, partial read(), 25165824 of 33554432 bytes at offset 0",
    ],
)
def test_harmless_notes_are_no_failures(note: str) -> None:
    assert _parse(f"{note}\n{MMAP}", rc=0).status == "ok"


@pytest.mark.parametrize(
    "error",
    [
        "srun: error: n1: task 0: Exited with exit code 1",
        "ior: error while loading shared libraries: libmpi.so.40: cannot open shared object file: No such file",
        "[n1:1] [[18045,0],0] ORTE_ERROR_LOG: Out of resource in file orted/pmix/pmix_server.c at line 501",
        "ior WARNING: fsync() failed, errno 9, Bad file descriptor",
    ],
)
def test_errors_are_failures(error: str) -> None:
    assert _parse(f"{error}\n{MMAP}", rc=0).status == "failed"


def test_operations_of_a_command_line() -> None:
    assert IorCommand.read("ior -t 1m").operations() == {"write", "read"}
    assert IorCommand.read("ior -wk").operations() == {"write"}
    assert IorCommand.read("ior -O writeFile=1").operations() == set()
