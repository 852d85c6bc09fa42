"""What breaks must end the whole run soon, with a message that names rank, operation and file, and no false trace."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

import launch

# `ctest -C full` does each of these to every interface, the short run to those that fail in different ways.
FULL = os.environ.get("BENCHIO_FULL") == "1"
LIES = os.environ["BENCHIO_LIES"]  # the library of lies.c
ENDLESS = ("--repeat", "1000000", "--local", "64x64x64", "--quiet", "--timeout", "10")


def liar(lie: str) -> tuple[str, ...]:
    """The words before a command that is to be told LIE (lies.c)."""
    preload = ":".join(filter(None, (LIES, os.environ.get("LD_PRELOAD"))))
    return ("env", f"LD_PRELOAD={preload}", f"BENCHIO_LIE={lie}")


def is_guard(pid: int) -> bool:
    """The guard leads a session of its own and has nothing open but its pipe."""
    return os.getsid(pid) == pid and len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir())) == 1


class Faults(unittest.TestCase):
    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.home = pathlib.Path(holder.name)
        self.json = self.home / "record.json"
        self.scratch = self.home / "scratch"
        self.scratch.mkdir()

    def options(self, api: str, directory: pathlib.Path | None = None) -> tuple[str, ...]:
        return ("--api", api, "--dir", str(directory or self.scratch), "--json", str(self.json))

    def check_reported(self, code: int) -> None:
        """A launcher's exit code indicates an abort; Hydra of MPICH 4.2.1 returned 0 after 16 of 400.
        What counts, the message and the record, is looked at by every test."""
        if not launch.HYDRA:
            self.assertNotEqual(code, 0)

    def check_failed_record(self, *words: str) -> None:
        record = launch.record(self.json)
        self.assertEqual(record["status"], "failed")
        self.assertEqual(record["operations"], [])
        for word in words:
            self.assertIn(word, record["failure"]["message"])
        alone = launch.wait_for(lambda: not list(self.home.glob("record.json.*")))
        self.assertTrue(alone, f"left behind: {list(self.home.iterdir())}")

    def check_scratch_gone(self, directory: pathlib.Path | None = None) -> None:
        directory = directory or self.scratch
        gone = launch.wait_for(lambda: not list(directory.glob("benchio-*")))
        self.assertTrue(gone, f"left behind: {list(directory.glob('benchio-*/*'))}")

    def test_exit_code_of_the_program_itself(self) -> None:
        """Without a launcher: Hydra puts 1 in the place of an aborting rank's 3 in about one run of eighty."""
        done = launch.alone(*self.options("posix", self.home / "nowhere"))
        self.assertEqual(done.returncode, 3, done.stderr)

    def lied_to_ranks(self, lie: str, *options: str) -> subprocess.CompletedProcess[str]:
        """Two ranks in memory, where a file made again has another inode; the shim distinguishes files by it."""
        with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
            words = (*self.options("mpiio", pathlib.Path(directory)), "--local", "8x8x8", *options)
            return launch.ended([launch.MPIEXEC, "-n", "2", *liar(lie), launch.BENCHIO, *words])

    def test_file_made_again_behind_an_old_entry(self) -> None:
        """On GlusterFS with default options other nodes saw the file of the repetition before, or none."""
        done = self.lied_to_ranks("entries", "--repeat", "3", "--verify")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("all as written", done.stdout)

    def test_file_that_one_rank_cannot_open(self) -> None:
        """Open MPI's collective open then waits for ever on all ranks. Two looks of five seconds, and the end."""
        begun = time.monotonic()
        done = self.lied_to_ranks("absent")
        self.check_reported(done.returncode)
        # ROMIO of MPICH has words of its own for ENOENT.
        self.assertRegex(
            done.stderr,
            r"rank 1 on .*(open\w* of .*data\.000000|MPI_File_open).*(No such file or directory|does not exist)",
        )
        self.assertLess(time.monotonic() - begun, 30)

    def test_missing_directory(self) -> None:
        done = launch.run(2, *self.options("posix", self.home / "nowhere"))
        self.check_reported(done.returncode)
        self.assertIn("rank 0", done.stderr)
        self.assertIn("nowhere: No such file or directory", done.stderr)
        self.check_failed_record("No such file or directory")

    def test_no_permission(self) -> None:
        with launch.small_tmpfs("ro,size=1m") as directory:
            done = launch.run(2, *self.options("mpiio", directory))
        self.check_reported(done.returncode)
        self.assertIn("Read-only file system", done.stderr)
        self.check_failed_record(str(directory))

    def test_record_cannot_be_written(self) -> None:
        done = launch.run(
            2, "--api", "posix", "--dir", str(self.scratch), "--json", str(self.home / "no" / "r.json")
        )
        self.check_reported(done.returncode)
        self.assertIn("writing the record", done.stderr)
        self.check_scratch_gone()

    def test_a_device_is_no_record(self) -> None:
        """rename() would put a file in the place of /dev/null, for root."""
        os.mkfifo(self.json)
        done = launch.alone(*self.options("posix"), "--local", "8x8x8", "--repeat", "1")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("no regular file", done.stderr)
        self.assertTrue(self.json.is_fifo())
        self.check_scratch_gone()

    def limited(self, api: str, blocks: int) -> str:
        """Two ranks, 32 KiB each, in files of at most `blocks` of 512 bytes; the message. Only the ranks are limited:
        Open MPI 4.1's launcher may hang where its own files are. Its shared memory is a file of megabytes."""
        if launch.HYDRA:
            self.skipTest("MPICH's UCX cannot start with such a limit: its shared memory is a file, too")
        script = f'export OMPI_MCA_btl=self,tcp; ulimit -f {blocks}; exec "$@"'
        words = (launch.MPIEXEC, "-n", "2", "sh", "-c", script, "sh")
        done = launch.alone(*self.options(api), "--local", "16x16x16", before=words)
        self.check_reported(done.returncode)
        self.check_failed_record("data.000000")
        self.check_scratch_gone()
        return done.stderr

    def test_limit_of_file_sizes(self) -> None:
        """Refused before one rank fails and leaves the others waiting inside a library."""
        for api in launch.apis():
            with self.subTest(api=api):
                message = self.limited(api, 20)
                self.assertRegex(message, r"rank 0 on .*data\.000000: 65536 bytes are needed, 10240 are allowed")

    def test_a_write_beyond_the_limit_of_file_sizes(self) -> None:
        """The data fit, the library's own do not: the kernel's SIGXFSZ would kill the rank without a word."""
        if "pnetcdf" not in launch.apis():
            self.skipTest("this benchio was built without PnetCDF")
        self.assertRegex(self.limited("pnetcdf", 128), r"benchio: rank \d on .*data\.000000: ")

    def lied_to(self, lie: str, *options: str) -> int:
        if "hdf5" not in launch.apis():
            self.skipTest("this benchio was built without HDF5")
        shape = ("--pattern", "disjoint", "--block", "64k", "--transfer", "64k", "--repeat", "1")
        return launch.alone(*self.options("hdf5"), *shape, *options, before=liar(lie)).returncode

    def test_collective_metadata_only_with_its_option(self) -> None:
        """A library that refuses it shows whether benchio asks for it."""
        self.assertEqual(self.lied_to("metadata"), 0)
        self.assertEqual(self.lied_to("metadata", "--collective-metadata"), 3)
        self.check_failed_record("H5Pset_coll_metadata_write")

    def without_memory(self, call: int, *options: str) -> str:
        """Errors of a run without memory for benchio's own CALLth call of realloc or strdup; empty: it has fewer."""
        done = launch.alone(*options, before=(*liar("memory"), f"BENCHIO_LIE_CALL={call}"))
        if done.returncode == 0:
            self.assertNotIn("no memory", done.stderr)
            return ""
        self.assertIn(done.returncode, (2, 3), done.stderr)  # 2: before there is a run that could fail
        self.assertRegex(done.stderr, r"benchio: .*: no memory( for \d+ bytes \(.*fail\.c:\d+\))?\n")
        self.check_scratch_gone()
        return done.stderr

    def test_no_memory(self) -> None:
        """Of the command line, the hints in force, the rows of results."""
        hints = self.home / "hints"
        hints.write_text("cb_nodes = 1\nromio_cb_write = enable\n")
        options = ("--hint", "cb_buffer_size=1048576", "--hints-file", str(hints), "--local", "8x8x8", "--repeat", "2")
        messages = []
        while message := self.without_memory(len(messages) + 1, *self.options("mpiio"), *options, "--quiet"):
            messages.append(message)
        for words in ("--hint cb_buffer_size=1048576", "--hints-file", "hints in force", "results"):
            self.assertTrue([message for message in messages if words in message], f"{words}: {messages}")

    def test_no_memory_for_a_description(self) -> None:
        if "workloads: not built" in launch.version():
            self.skipTest("this benchio was built without libyaml")
        workload = pathlib.Path(__file__).parent.parent / "workloads" / "flash-io.yaml"
        options = ("--workload", str(workload), "--check")
        call = 1
        while self.without_memory(call, *options):
            call += 1 if FULL else call
        self.assertGreater(call, 100)

    def test_a_read_that_moves_nothing(self) -> None:
        """The memory holds what was just written: the same bytes, where one transfer is the whole file."""
        self.assertEqual(self.lied_to("none", "--verify"), 0)
        self.assertEqual(self.lied_to("read", "--verify"), 1)

    def test_blocks_that_are_counted_late(self) -> None:
        """No data are lost in a file with holes between its parts that has no blocks until it is flushed."""
        self.assertEqual(self.lied_to("blocks", "--chunk", "16k", "--align", "16k", "--verify"), 0)

    def test_older_record_does_not_survive(self) -> None:
        self.json.write_text('{"status": "ok"}')
        launch.run(1, *self.options("posix", self.home / "nowhere"))
        self.check_failed_record("No such file")

    def test_too_little_space_is_seen_before(self) -> None:
        with launch.small_tmpfs("size=20m") as directory:
            done = launch.run(2, *self.options("posix", directory))
            self.check_scratch_gone(directory)
        self.check_reported(done.returncode)
        self.assertIn("33554432 bytes are needed", done.stderr)
        self.check_failed_record("bytes are needed")

    def test_disk_full_while_running(self) -> None:
        for api in [api for api in launch.apis() if FULL or api in ("posix", "mpiio", "hdf5")]:
            chosen = ("collective", "independent") if FULL else ("collective",)
            for access in ("independent",) if api == "posix" else chosen:
                with self.subTest(api=api, access=access), launch.small_tmpfs("size=12m") as directory:
                    self.disk_full(api, access, directory)

    def disk_full(self, api: str, access: str, directory: pathlib.Path) -> None:
        """Another program fills the file system while benchio repeats itself."""
        process = launch.start(3, *self.options(api, directory), *ENDLESS, "--access", access)
        self.assertTrue(launch.wait_for(lambda: list(directory.glob("benchio-*/data.*"))), "never started")
        with (directory / "filler").open("wb", buffering=0) as filler:
            while process.poll() is None:  # benchio's own removals make room again
                with contextlib.suppress(OSError):
                    filler.write(bytes(1 << 20))
                time.sleep(0.001)
            _, stderr = process.communicate(timeout=60)
        self.check_reported(process.returncode)
        self.assertRegex(stderr, r"benchio: rank \d on .*data\.000000")
        self.check_scratch_gone(directory)
        self.assertEqual(launch.record(self.json)["status"], "failed")

    def test_file_vanishes(self) -> None:
        for api in launch.apis() if FULL else ("posix", "mpiio"):
            with self.subTest(api=api):
                process = launch.start(2, *self.options(api), *ENDLESS)
                while process.poll() is None:
                    with contextlib.suppress(OSError):  # the directory is removed, too
                        for path in self.scratch.glob("benchio-*/data.*"):
                            path.unlink(missing_ok=True)
                _, stderr = process.communicate(timeout=60)
                self.check_reported(process.returncode)
                self.assertRegex(stderr, r"benchio: rank \d on .*: .*data\.000000(\.\d+)?: .*")
                self.check_failed_record("data.000000")
                self.check_scratch_gone()

    def test_a_failed_run_needs_no_guard_to_remove_its_files(self) -> None:
        process, processes = self.running("posix", ranks=1)
        for guard in filter(is_guard, processes):
            os.kill(guard, signal.SIGKILL)
        while process.poll() is None:
            with contextlib.suppress(OSError):  # the directory is removed, too
                for path in self.scratch.glob("benchio-*/data.*"):
                    path.unlink(missing_ok=True)
        process.communicate(timeout=60)
        self.check_failed_record("data.000000")
        self.check_scratch_gone()

    def running(self, api: str, ranks: int = 3) -> tuple:
        process = launch.start(ranks, *self.options(api), *ENDLESS)
        self.addCleanup(process.kill)
        self.assertTrue(launch.wait_for(lambda: list(self.scratch.glob("benchio-*/data.*"))), "never started")
        return process, launch.ranks_in(self.scratch)

    def check_nobody_left(self) -> None:
        """No rank, no record, no scratch directory. The launcher's exit status is no part of it: Hydra now and
        then loses the status of ranks that it or a signal killed and returns 0 (pmodels/mpich issue 7057)."""
        self.assertTrue(launch.wait_for(lambda: not launch.ranks_in(self.scratch)), "a rank is still running")
        self.assertFalse(self.json.exists(), "a record although the run was killed")
        self.check_scratch_gone()

    def test_the_launcher_is_killed(self) -> None:
        process, _ = self.running("posix")
        process.kill()
        process.communicate(timeout=60)
        self.check_nobody_left()

    def test_a_rank_is_killed(self) -> None:
        """Whichever rank it is, nobody hangs and the guard removes the scratch directory."""
        for index in range(3) if FULL else (0, 2):
            with self.subTest(rank=index):
                process, processes = self.running("mpiio")
                ranks = [pid for pid in processes if not is_guard(pid)]
                self.assertEqual(len(ranks), 3)
                draft = self.home / "record.json.1.tmp"  # as of a rank killed while it wrote one
                draft.touch()
                os.kill(ranks[index], signal.SIGKILL)
                process.communicate(timeout=60)
                self.check_nobody_left()
                gone = launch.wait_for(lambda path=draft: not path.exists())
                self.assertTrue(gone, "a draft was left behind")

    def test_terminated_by_the_scheduler(self) -> None:
        process, _ = self.running("posix")
        process.terminate()
        process.communicate(timeout=60)
        self.check_nobody_left()

    def damaged(self, api: str, damage) -> str:
        """Write, damage the file, read with verification; the message."""
        shared = (
            *self.options(api),
            "--name",
            "kept",
            "--pattern",
            "disjoint",
            "--block",
            "200000",
            "--transfer",
            "64k",
        )
        self.assertEqual(launch.run(2, *shared, "--repeat", "1", "--keep").returncode, 0)
        damage(self.scratch / "kept" / "data.000000")
        done = launch.run(2, *shared, "--repeat", "1", "--op", "read", "--existing", "--verify")
        self.check_reported(done.returncode)
        for path in (self.scratch / "kept").iterdir():
            path.unlink()
        (self.scratch / "kept").rmdir()
        self.assertEqual(launch.record(self.json)["status"], "failed")
        return done.stderr

    def test_one_wrong_byte_is_found_where_it_is(self) -> None:
        where = 300001

        def flip(path: pathlib.Path) -> None:
            data = bytearray(path.read_bytes())
            data[len(data) - 400000 + where] ^= 1  # the data are the end of the file in these formats
            path.write_bytes(data)

        for api in launch.apis():
            if api in ("hdf5", "netcdf4"):
                continue  # the end of the file may be metadata; their checks are the same code
            with self.subTest(api=api):
                message = self.damaged(api, flip)
                self.assertRegex(
                    message,
                    rf"rank \d .*at byte {where} of the data: expected 0x.., found 0x..; 1 bytes differ",
                )

    def test_a_file_without_the_variable(self) -> None:
        """The name of the variable is plain text in the header of CDF-5; the check is that of netcdf4, too."""
        if "pnetcdf" not in launch.apis():
            self.skipTest("this benchio was built without PnetCDF")
        message = self.damaged(
            "pnetcdf", lambda path: path.write_bytes(path.read_bytes().replace(b"data", b"dato", 1))
        )
        self.assertRegex(message, r"rank \d on .*: ncmpi_inq_varid of .*data\.000000: .*not found")

    def test_short_file(self) -> None:
        for api in ("posix", "mpiio", "hdf5"):
            if api in launch.apis():
                with self.subTest(api=api):
                    message = self.damaged(api, lambda path: os.truncate(path, 390000))
                    self.assertRegex(message, r"benchio: rank \d on ")


if __name__ == "__main__":
    unittest.main()
