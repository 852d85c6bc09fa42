"""The contract of the command line: what is refused, exit codes, the record, --help, --version, --existing."""

from __future__ import annotations

import hashlib
import json
import pathlib
import subprocess
import tempfile
import unittest

import launch

SCHEMA = pathlib.Path(__file__).parents[1] / "schema" / "record.schema.json"

# Options and the words of the refusal.
REFUSED = {
    "--transfer 1.3k": "not a whole number of bytes",
    "--transfer 1x": "expected a size",
    "--repeat 0": "at least 1",
    "--repeat 1.5": "whole number",
    "--apis posix": "did you mean --api",
    "--api posixx": "expected one of",
    "--file shard": "expected one of shared, per-process, per-node",
    "--local 1x2": "needs three sizes",
    "--local 8x8x8 --global 8x8x8": "exclude each other",
    "--pattern disjoint --local 8x8x8": "--local has no meaning",
    "--block 4k": "--block has no meaning for --pattern block3d",
    "--pattern disjoint --transfer 2m --block 1m": "larger than --block",
    "--pattern disjoint --segments 0": "at least 1",
    "--api posix --hint a=b": "no MPI-IO hints",
    "--api posix --access collective": "posix has no collective transfers",
    "--api mpiio --stripe-count 4 --hint striping_factor=8": "have the same effect",
    "--api mpiio --stripe-size 1m --hint striping_unit=4096": "have the same effect",
    "--api posix --chunk 8x8x8": "no chunked storage",
    "--api posix --align 1m": "does not",
    "--api mpiio --cache direct": "only posix",
    "--api mpiio --hint cb": "expected KEY=VALUE",
    f"--api mpiio --hint {300 * 'k'}=1": "this MPI takes keys of at most ",
    f"--api mpiio --hint cb_config_list={2000 * 'n'}": "cb_config_list: this MPI takes values of at most ",
    "--api mpiio --collective-metadata": "hdf5 only",
    "--api posix --pattern disjoint --transfer 1000 --block 1000 --cache direct": "multiples of 4096",
    "--api hdf5 --filter deflate": "need --chunk",
    "--api hdf5 --filter deflate --chunk 8x8x8 --access independent": "needs --access collective",
    "--api hdf5 --filter deflate --chunk 8x8x8 --filter-level 10": "levels up to 9",
    "--api hdf5 --filter szip --pattern disjoint --chunk 64k": "needs --pattern block3d",
    "--api hdf5 --filter szip --chunk 16x16x16": "at least 32 elements",
    "--api hdf5 --filter gzip --chunk 8x8x8": "expected one of none, deflate, szip, zstd",
    "--api hdf5 --chunk-cache 1m": "need --chunk",
    "--api mpiio --vfd subfiling": "hdf5 only",
    "--api posix --byte-order big": "hdf5 and netcdf4",
    "--api hdf5 --byte-order big --pattern disjoint": "bytes have no order",
    "--api hdf5 --vfd subfiling": "needs --access independent",
    "--api hdf5 --vfd subfiling --access independent --cache drop": "only --cache keep",
    "--api null --verify": "keeps no data",
    "--op read --sync": "nothing to flush",
    "--op read --existing": "--name",
    "--name a/b": "plain name",
    "--hints-file /nonexistent": "No such file",
    "--hints-file /": "Is a directory",
    "--file per-node --global 8x8x8": "form no box",
    "block3d": "is not an option",
    "--json": "needs a value",
}


# What depends on the number of ranks (2).
REFUSED_FOR_RANKS = {
    "--instances 9": "only 2 ranks",
    "--global 1x1x1": "fewer elements",
    "--transfer 1k": "smaller than one plane",
    "--pattern disjoint --file per-process --block 8191p": "all files together are too large",
}


class CommandLine(unittest.TestCase):
    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.home = pathlib.Path(holder.name)
        self.json = self.home / "record.json"

    def run_fine(self, ranks: int, *options: str) -> dict:
        done = launch.run(ranks, "--dir", str(self.home), "--json", str(self.json), "--quiet", *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "")
        return launch.record(self.json)

    def check_refusal(self, done: subprocess.CompletedProcess[str], words: str) -> None:
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertIn(words, done.stderr)
        self.assertEqual(done.stderr.count("benchio: "), 1)
        self.assertEqual(list(self.home.iterdir()), [])

    def test_senseless_is_refused(self) -> None:
        more = {"--api netcdf4 --align 4g": "at most 2^31 - 1"} if "netcdf4" in launch.apis() else {}
        for text, words in (REFUSED | more).items():
            with self.subTest(options=text):
                command = [launch.BENCHIO, f"--dir={self.home}", *text.split()]
                self.check_refusal(subprocess.run(command, capture_output=True, text=True, check=False), words)

    def test_impossible_for_these_ranks_is_refused(self) -> None:
        for text, words in REFUSED_FOR_RANKS.items():
            with self.subTest(options=text):
                self.check_refusal(launch.run(2, f"--dir={self.home}", *text.split()), words)

    def test_help_needs_no_launcher(self) -> None:
        done = subprocess.run([launch.BENCHIO, "--help"], capture_output=True, text=True, check=True)
        self.assertIn("Examples:", done.stdout)
        man = (SCHEMA.parents[1] / "man" / "benchio.1").read_text().replace("\\-", "-")
        for line in done.stdout.splitlines():
            if line.startswith("  --"):
                name = line.split()[0].split("=")[0]
                self.assertIn(name, man, "the man page lacks an option")

    def test_version_names_every_library(self) -> None:
        text = subprocess.run([launch.BENCHIO, "--version"], capture_output=True, text=True, check=True).stdout
        for name in (
            "benchio ",
            "record benchio-record/3",
            "MPI ",
            "posix",
            "mpiio",
            "hdf5",
            "netcdf4",
            "pnetcdf",
            "null",
        ):
            self.assertIn(f"\n{name}" if name != "benchio " else name, text)
        # Libraries describe themselves in a sentence: "Open MPI v4.1.4, package: …".
        self.assertRegex(text, r"\nMPI [A-Z][^,]* \d+(\.\d+)+\w*\n")

    def check_schema(self, record: dict) -> None:
        try:
            import jsonschema
        except ImportError:
            self.skipTest("the Python package jsonschema is not installed")
        jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).validate(record)

    def test_big_doubles_are_those_of_the_native_file_with_swapped_bytes(self) -> None:
        if "hdf5" not in launch.apis():
            self.skipTest("benchio was built without HDF5")
        size, files = 8 * 8 * 8 * 8, {}
        for order in ("native", "big"):
            options = f"--api hdf5 --local 8x8x8 --repeat 1 --keep --name {order} --byte-order {order}"
            self.run_fine(1, *options.split())
            (path,) = (self.home / order).glob("data.*")
            files[order] = path.read_bytes()
        swapped = bytearray(files["native"])
        for byte in range(8):
            swapped[byte::8] = files["native"][7 - byte :: 8][: len(swapped[byte::8])]
        starts = range(0, len(swapped) - size + 1, 8)
        self.assertTrue(any(files["big"][at : at + size] == swapped[at : at + size] for at in starts))

    def test_records_follow_the_schema(self) -> None:
        small = ("--local", "8x8x8", "--repeat", "2")
        for api in [*launch.apis(), "null"]:
            more = () if api == "null" else ("--op", "both", "--verify")
            with self.subTest(api=api):
                self.check_schema(self.run_fine(2, "--api", api, *small, *more))
        self.check_schema(self.run_fine(3, *small, "--instances", "2", "--hint", "cb_nodes=1"))
        self.check_schema(
            self.run_fine(
                2, "--pattern", "interleaved", "--transfer", "1000", "--cache", "drop", "--op", "both"
            )
        )

    def test_the_record_ends_with_its_count_and_digest(self) -> None:
        """Of a record that is fine and of a failed one; the text before is defined in the schema, `integrity`."""
        record = self.run_fine(2, "--local", "8x8x8", "--repeat", "3", "--op", "both")
        self.assertEqual(record["integrity"]["repetitions"], 6)
        self.check_digest()
        launch.run(2, "--local", "8x8x8", "--dir", str(self.home / "absent"), "--json", str(self.json))
        self.assertEqual(launch.record(self.json)["integrity"]["repetitions"], 0)
        self.check_digest()

    def check_digest(self) -> None:
        body, _, last = self.json.read_text(encoding="utf-8").rpartition(',\n  "integrity": {')
        self.assertIn(f'"sha256": "{hashlib.sha256(body.encode()).hexdigest()}"', last)

    def test_bandwidth_is_bytes_over_seconds(self) -> None:
        record = self.run_fine(3, "--local", "20x10x30", "--instances", "3", "--repeat", "4")
        repetitions = record["operations"][0]["repetitions"]
        self.assertEqual(len(repetitions), 4)
        self.assertEqual(record["geometry"]["bytes_per_repetition"], 3 * 20 * 10 * 30 * 8)
        for repetition in repetitions:
            self.assertAlmostEqual(
                repetition["bandwidth_bytes_per_second"] * repetition["seconds"], 144000, places=3
            )
            longest = max(one["seconds"] for one in repetition["instances"])
            self.assertLessEqual(longest, repetition["seconds"])
            total = sum(phase["mean"] for phase in repetition["phases"].values())
            self.assertLessEqual(total, repetition["seconds"] * 1.001)
            for phase in repetition["phases"].values():
                self.assertLessEqual(phase["min"], phase["mean"] * 1.000001)
                self.assertLessEqual(phase["mean"], phase["max"] * 1.000001)

    def test_each_transfer_has_a_time(self) -> None:
        """Checking takes as long as it likes: it is no part of a transfer."""
        sizes = ("--pattern", "disjoint", "--transfer", "1k", "--block", "200k", "--repeat", "2")
        record = self.run_fine(3, *sizes, "--op", "both", "--verify")
        self.assertEqual(record["geometry"]["transfers_per_rank"], 200)
        for operation in record["operations"]:
            for repetition in operation["repetitions"]:
                times, phases = repetition["transfers"], repetition["phases"]
                self.assertEqual(times["count"], 3 * 200)
                self.assertGreater(times["median_seconds"], 0)
                self.assertLessEqual(times["median_seconds"], times["p99_seconds"])
                self.assertLessEqual(times["p99_seconds"], times["max_seconds"])
                # Times of transfers have six digits.
                self.assertLessEqual(times["max_seconds"], phases["transfer"]["max"] * 1.00001)

    def test_hash_is_of_what_is_measured(self) -> None:
        first = self.run_fine(1, "--local", "8x8x8", "--repeat", "1")
        same = self.run_fine(1, "--local=8x8x8", "--repeat=1", "--seed", "7", "--name", "other")
        other = self.run_fine(1, "--local", "8x8x9", "--repeat", "1")
        self.assertEqual(first["options_hash"], same["options_hash"])
        self.assertNotEqual(first["options_hash"], other["options_hash"])
        unhashed = {"timeout", "seed", "dir", "name", "keep", "existing", "json", "run-id", "quiet", "hints-file"}
        unhashed |= {"workload", "set"}  # the record has name, digest and parameters of the description
        kept = {key: value for key, value in first["options"].items() if key not in unhashed}
        text = json.dumps(kept, separators=(",", ":"))
        self.assertEqual(first["options_hash"], hashlib.sha256(text.encode()).hexdigest())

    def test_hints_in_force_are_recorded(self) -> None:
        (self.home / "hints").write_text("# comment\ncb_nodes = 2\ncb_buffer_size=1048576\n")
        hints = ("--hints-file", str(self.home / "hints"), "--hint", "cb_nodes=1")
        record = self.run_fine(2, "--local", "8x8x8", "--repeat", "1", *hints)
        self.assertEqual(record["options"]["hint"], {"cb_nodes": "1", "cb_buffer_size": "1048576"})
        self.assertIn("file handle", record["hints"]["source"])
        self.assertEqual(record["hints"]["effective"].get("cb_nodes"), "1")

    def test_hints_that_are_only_repeated_are_not_called_in_force(self) -> None:
        """Open MPI 4.1 returns every hint that it got, ROMIO in MPICH only known ones."""
        for api in launch.apis():
            if api == "posix":
                continue
            hints = ("--hint", "misspelt_cb_nodes=1")
            with self.subTest(api=api):
                found = self.run_fine(2, "--api", api, "--local", "8x8x8", "--repeat", "1", *hints)["hints"]
                repeated = "misspelt_cb_nodes" in found["effective"]
                self.assertEqual(repeated, "repeats any hint" in found["source"])
                self.assertNotIn("benchio_made_up", found["effective"])

    def test_long_lines_of_the_hints_file_are_read_completely(self) -> None:
        """A blank line, a comment or a hint may be of any length; none is taken for several."""
        remark = "# " + 1200 * "x" + " cb_nodes = 3"
        padded = "cb_nodes =" + 1200 * " " + "2 " + remark
        (self.home / "hints").write_text("\n".join((remark, padded, 1200 * " ", "cb_buffer_size=1048576")))
        record = self.run_fine(1, "--local", "8x8x8", "--repeat", "1", "--hints-file", str(self.home / "hints"))
        self.assertEqual(record["options"]["hint"], {"cb_nodes": "2", "cb_buffer_size": "1048576"})

    def test_a_wrong_line_of_the_hints_file_is_named_by_its_number(self) -> None:
        with tempfile.NamedTemporaryFile("w") as hints:
            hints.write("# " + 3000 * "x" + "\ncb_nodes=1\nnonsense\n")
            hints.flush()
            command = [launch.BENCHIO, f"--dir={self.home}", f"--hints-file={hints.name}"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            self.check_refusal(done, f"--hints-file {hints.name}, line 3: expected KEY=VALUE")

    def test_the_mount_is_found_whatever_its_name(self) -> None:
        with launch.small_tmpfs("size=8m", r"a b\040ü") as directory:
            options = ("--dir", str(directory), "--json", str(self.json), "--local", "8x8x8", "--repeat", "1")
            launch.run(1, *options)
            found = launch.record(self.json)["filesystem"]
            self.assertEqual((found["type"], found["mount"]), ("tmpfs", str(directory)))

    def test_minimum_time(self) -> None:
        record = self.run_fine(1, "--api", "posix", "--local", "8x8x8", "--repeat", "1", "--min-time", "0.3")
        self.assertGreater(len(record["operations"][0]["repetitions"]), 1)

    def test_keep_then_existing(self) -> None:
        for api in launch.apis():
            if api == "netcdf4":
                continue  # the same code as hdf5
            with self.subTest(api=api):
                options = (
                    "--api",
                    api,
                    "--name",
                    "kept",
                    "--local",
                    "8x8x8",
                    "--repeat",
                    "1",
                    "--file",
                    "per-process",
                )
                self.run_fine(2, *options, "--keep")
                self.assertGreaterEqual(len(list((self.home / "kept").glob("data.*"))), 2)
                record = self.run_fine(2, *options, "--op", "read", "--existing", "--verify")
                self.assertEqual(record["verification"]["bytes_checked"], 2 * 8**3 * 8)
                for path in (self.home / "kept").iterdir():
                    path.unlink()
                (self.home / "kept").rmdir()

    def test_existing_name_is_not_overwritten(self) -> None:
        (self.home / "mine").mkdir()
        (self.home / "mine" / "data.000000").write_text("precious")
        done = launch.alone("--dir", str(self.home), "--name", "mine")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("File exists", done.stderr)
        self.assertEqual((self.home / "mine" / "data.000000").read_text(), "precious")


if __name__ == "__main__":
    unittest.main()
