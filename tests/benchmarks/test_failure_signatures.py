"""Failure signatures: phrases and exit codes."""

from __future__ import annotations

import pytest

from iowatch.benchmarks.benchio import BENCHIO
from iowatch.benchmarks.h5bench import H5BENCH
from iowatch.benchmarks.ior import IOR
from iowatch.benchmarks.mdtest import MDTEST
from iowatch.benchmarks.parsing import ExitStatusMeaning, SignatureScanner, explain_exit_status
from iowatch.benchmarks.registry import failure_signatures


@pytest.mark.parametrize(
    ("status", "stopped", "words"),
    [
        (1, False, "exit code 1"),
        (124, True, "stopped by timeout (exit code 124)"),
        (137, True, "killed by signal 9 (SIGKILL)"),
        (-9, True, "killed by signal 9 (SIGKILL)"),
        (143, True, "killed by signal 15 (SIGTERM)"),
        (-11, False, "killed by signal 11 (SIGSEGV)"),
        (139, False, "exit code 139"),
        (-99, False, "killed by signal 99"),
    ],
)
def test_exit_codes_are_explained(status: int, stopped: bool, words: str) -> None:
    assert explain_exit_status(status) == ExitStatusMeaning(stopped, words)


# One line per kind, from the captured outputs and the sources of the tools.
LINES = {
    "no space left on device": "mca_fbtl_posix_pwritev: error in (p)write(v):No space left on device",
    "disk quota exceeded": "write failed: Disk quota exceeded",
    "time limit of the job reached": "slurmstepd: error: *** JOB 7 ON n1 CANCELLED DUE TO TIME LIMIT ***",
    "out of memory": "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=7",
    "launcher error: not enough slots": "There are not enough slots available in the system to satisfy",
    "the launcher refuses to run as root": "mpirun has detected an attempt to run as root.",
    "shared library not found": "ior: error while loading shared libraries: libhdf5.so.310: cannot open",
    "segmentation fault": "[n1:1] Signal: Segmentation fault (11)",
    "Fortran run-time error": "Fortran runtime error: Cannot open file 'benchio_files/serial.dat'",
    "the HDF5 library reports an error": "HDF5-DIAG: Error detected in HDF5 (1.14.5) MPI-process 1:",
    "MPI_Abort was called": "MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD",
    "MPI reports a fatal error": "[vm:6562] *** MPI_ERRORS_ARE_FATAL (processes in this communicator",
    "a process ended with an error": "a non-zero exit code. Per user-direction, the job has been aborted.",
    "file system connection lost": "close: Cannot send after transport endpoint shutdown",
    "the launcher lost a node": "ORTE has lost communication with a remote daemon.",
    "the node does not respond": "  Remote daemon: [[54364,0],3] on node n4",
    "stale file handle": "open: Stale file handle",
}


@pytest.mark.parametrize("meaning", LINES)
def test_failure_signatures_are_found_between_other_lines(meaning: str) -> None:
    scanner = SignatureScanner()
    scanner.inspect(f"all is well\n{LINES[meaning]}\nreal 0.1\n".encode())
    assert next(iter(scanner.seen)) == meaning
    assert scanner.reasons(fatal=True) == [f"{meaning}: '{LINES[meaning]}'"]


# Printed by MPICH 4.0.2 where UCX has no device (UCX_TLS=rc).
ERROR_STACK = """\
Abort(605671055): Fatal error in internal_Init: Other MPI error, error stack:
internal_Init(59)........: MPI_Init(argc=0x7ffc2bf6497c, argv=0x7ffc2bf64970) failed
MPII_Init_thread(209)....: 
MPID_Init(443)...........: 
MPIDI_UCX_init_local(252):  ucx function returned with failed status(ucx_init.c 252 MPIDI_UCX_init_local No such device)
"""  # noqa: W291


def test_reason_of_an_error_stack_is_its_deepest_call() -> None:
    scanner = SignatureScanner()
    scanner.inspect(ERROR_STACK.encode())
    (reason,) = scanner.reasons(fatal=True)
    assert reason.startswith("MPI reports a fatal error: 'MPIDI_UCX_init_local(252): ")
    assert reason.endswith("No such device)'")


def test_text_like_an_error_stack_is_no_failure() -> None:
    scanner = SignatureScanner()
    scanner.inspect(b"main(12)...: started\n")
    assert not scanner.seen


def test_long_message_keeps_its_beginning_and_its_reason() -> None:
    """A path of 300 characters is between what was tried and why it failed."""
    scanner = SignatureScanner()
    scanner.inspect(f"benchio: rank 3 on n2: opening of /scratch/{'x' * 300}: Input/output error (a.c:7)\n".encode())
    (reason,) = scanner.reasons(fatal=True)
    assert reason.startswith("input/output error: 'benchio: rank 3 on n2: opening of /scratch/xxx")
    assert reason.endswith("x: Input/output error (a.c:7)'")
    assert len(reason) < 350


def test_harmless_warnings_are_no_failure() -> None:
    scanner = SignatureScanner(failure_signatures(IOR))
    scanner.inspect(
        b"[vm:1234] [[INVALID],0] btl warning: hfi_userinit: assign_context command failed\n"
        b"bash: warning: setlocale: LC_ALL: cannot change locale (de_DE.UTF-8)\n"
        b'WARNING: The file "/scratch/error/f" exists already and will be overwritten\n'
    )
    assert scanner.reasons(fatal=True) == []


def test_explanatory_phrases_are_not_fatal() -> None:
    scanner = SignatureScanner()
    scanner.inspect(b"bash: module: command not found\nmkdir: /x: Permission denied\n")
    assert scanner.reasons(fatal=True) == []
    assert len(scanner.reasons(fatal=False)) == 2


def test_lines_that_differ_only_in_digits_are_searched_once() -> None:
    scanner = SignatureScanner()
    scanner.inspect(b"".join(b"%d: failed to progress, error %d\n" % (n, n) for n in range(1000)))
    assert len(scanner._searched) <= 2


def test_output_of_another_benchmark_is_a_failure() -> None:
    scanner = SignatureScanner(failure_signatures(IOR))
    scanner.inspect(b"mdtest-4.0.0 was launched with 2 total task(s) on 1 node(s)\n")
    assert len(scanner.reasons(fatal=True)) == 1


OWN = {
    "data check errors": (IOR, "WARNING: Incorrect data on read (1 errors found)."),
    "I/O calls failed": (MDTEST, "WARNING: write(17, 0x7f, 1602688) failed No space"),
    "IOR reports an error": (IOR, "ior ERROR: cannot open file, MPI MPI_ERR_OTHER"),
    "mdtest reports an error": (MDTEST, "error could not create directory '/scratch/d'"),
    "h5bench reports an error": (H5BENCH, "Failed to read dimensions"),
    "invalid h5bench configuration": (H5BENCH, "DIM_1 must be at least 1"),
    "MPI-IO reports an error": (BENCHIO, "Open error on rank            1"),
    "benchio reports an error": (BENCHIO, "benchio: rank 0 on n1: no such directory"),
}


@pytest.mark.parametrize("meaning", OWN)
def test_signatures_of_each_benchmark_pass_the_prefilter(meaning: str) -> None:
    """Lines are searched without their digits first."""
    benchmark, line = OWN[meaning]
    scanner = SignatureScanner(benchmark.signatures)
    scanner.inspect(f"{line}\n".encode())
    assert scanner.seen
