"""Runs of workloads: what is written is what is read, counts are those of the description, and nothing stays."""

from __future__ import annotations

import copy
import json
import os
import pathlib
import random
import tempfile
import unittest
import unittest.mock

import launch

RANKS = 3
BYTES = {"posix", "mpiio"}

# Every action. Of 3 ranks each writes 5 rows of 7 doubles and 3 strided pieces of 1000 bytes, and reads those of
# the next rank; the first and the third append to a log per process, and everybody reads a file that was there.
PARTS = {
    "sets": """
  {api}: {{api: {api}, count: 2, attributes: 100, datasets: {{
    field: {{type: double, shape: [ranks * 5, 7], count: 2}}, odd: {{type: float, shape: [ranks, 3, 2]}},
    flags: {{type: int, shape: [ranks]}}, old: {{type: byte, shape: [10]}}, wide: {{type: long, shape: [4]}}}}}}
  {api}-in: {{api: {api}, input: true, layout: per-process, datasets: {{old: {{type: int, shape: [50, 3]}}}}}}""",
    "bytes": """
  {api}: {{api: {api}, count: 2, bytes: file_ranks * 3000}}
  {api}-in: {{api: {api}, input: true, bytes: 5000}}""",
}
WRITES = {
    "sets": """
      - {{create: {api}, number: 1}}
      - {{repeat: 2, index: v, actions: [
          {{write: {api}, number: 1, dataset: field, dataset_number: v, start: [rank * 5, 0], count: [5, 7],
            collective: {collective}}}]}}
      - {{write: {api}, number: 1, dataset: odd, start: [rank, 0, 0], count: [rank != 1, 3, 2],
          collective: {collective}}}
      - {{flush: {api}, number: 1}}
      - {{close: {api}, number: 1}}""",
    "bytes": """
      - {{create: {api}, number: 1}}
      - {{write: {api}, number: 1, offset: file_rank * 1000, size: 1000, count: 3, stride: file_ranks * 1000{access}}}
      - {{flush: {api}, number: 1}}
      - {{close: {api}, number: 1}}""",
}
READS = {
    "sets": """
      - {{open: {api}, number: 1}}
      - {{read: {api}, number: 1, dataset: field, dataset_number: 1, start: [next * 5 + 1, 2], count: [3, 4],
          collective: {collective}}}
      - {{close: {api}, number: 1}}
      - {{open: {api}-in}}
      - {{read: {api}-in, dataset: old, start: [17, 1], count: [30, 2], collective: {collective}}}
      - {{close: {api}-in}}""",
    "bytes": """
      - {{open: {api}, number: 1}}
      - {{read: {api}, number: 1, offset: next * 1000, size: 1000, count: 3, stride: file_ranks * 1000{access}}}
      - {{close: {api}, number: 1}}
      - {{open: {api}-in}}
      - {{read: {api}-in, list: [[4990, 10], [1, 2000]], ranks: "rank > 0"}}
      - {{close: {api}-in}}""",
}
HALO = "memory: {read: reused, write: reused, halo: true}\n"
LOG = """
      - {create: log, ranks: [0, 2]}
      - {write: log, offset: 90, size: 10, count: 10, stride: 0 - 10, ranks: [0, 2]}
      - {close: log, ranks: [0, 2]}
      - {stat: log, ranks: [0, 2]}
      - {remove: log, ranks: [0]}
      - barrier
      - {compute: 0.02 * (rank == 1)}
      - {work: 1000}"""


WITH_WORKLOAD = """--check --set=n=2 --repeat=2 --min-time=0 --timeout=60 --verify --seed=2 --cache=drop --keep
    --name=kept --run-id=x --quiet --hint=cb_nodes=1 --stripe-count=1 --stripe-size=64k"""
WITHOUT_WORKLOAD = """--api=posix --file=shared --instances=1 --pattern=disjoint --op=read --local=8x8x8 --global=8x8x8
    --transfer=1m --block=1m --segments=2 --row=8 --access=independent --sync=end --shift=1 --chunk=8x8x8
    --filter=deflate --filter-level=1 --chunk-cache=1m --vfd=mpio --byte-order=big --unlimited --fill --align=1m
    --collective-metadata --existing"""


def description(apis: list[str], collective: bool) -> str:
    """All interfaces in one run."""

    def of_all(parts: dict[str, str]) -> str:
        access = ", collective: true" if collective else ""
        return "".join(
            parts["bytes" if api in BYTES else "sets"].format(
                api=api, collective=str(collective).lower(), access="" if api == "posix" else access
            )
            for api in apis
        )

    return (
        "name: all-of-it\nvariables: {next: (rank + 1) % ranks}\nfiles:"
        + of_all(PARTS)
        + "\n  log: {api: posix, layout: per-process, bytes: 100}\nphases:\n  - name: write\n    actions:"
        + of_all(WRITES)
        + LOG
        + "\n  - name: read\n    actions:"
        + of_all(READS)
        + "\n"
    )


def damage(document: dict, draw: random.Random) -> None:
    """Replace, rename or remove one member somewhere."""
    places = [(document, key) for key in document]
    for holder, key in places:
        inner = holder[key]
        if isinstance(inner, dict | list):
            places += [(inner, k) for k in (inner if isinstance(inner, dict) else range(len(inner)))]
    holder, key = draw.choice(places)
    kind = draw.choice(("replace", "remove", "rename"))
    if kind == "replace" or (kind == "rename" and isinstance(holder, list)):
        holder[key] = draw.choice([None, True, -1, 2.5, "", "Name", [], {}, [1, 2], {"x": 1}])
    elif kind == "remove":
        del holder[key]
    else:
        holder[key + "x"] = holder.pop(key)


class Workloads(unittest.TestCase):
    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.home = pathlib.Path(holder.name)
        self.json, self.file = self.home / "record.json", self.home / "workload.yaml"

    def options(self, *more: str) -> list[str]:
        words = ["--workload", str(self.file), "--dir", str(self.home), "--json", str(self.json), "--quiet"]
        return [*words, "--repeat", "1", *more]

    def write(self, files: str, actions: str, more: str = "") -> None:
        self.file.write_text(f"name: t\n{more}files: {{{files}}}\nphases: [{{name: p, actions: [{actions}]}}]\n")

    def test_what_is_written_is_read(self) -> None:
        apis = launch.apis()
        byte_files, set_files = len(BYTES & set(apis)), len(set(apis) - BYTES)
        for collective, memory in ((False, ""), (True, ""), (False, HALO), (True, HALO)):
            self.file.write_text(memory + description(apis, collective))
            done = launch.run(RANKS, *self.options("--verify", "--cache", "drop", "--repeat", "2"))
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            record = launch.record(self.json)
            write, read = record["phases"]
            self.assertEqual((write["operation"], read["operation"]), ("write", "read"))
            # By hand from the description above.
            written = RANKS * 3000 * byte_files + set_files * (2 * RANKS * 5 * 7 * 8 + 2 * 3 * 2 * 4) + 2 * 100
            self.assertEqual(write["bytes_written"], written)
            expected = byte_files * (RANKS * 3000 + 2 * 2010) + set_files * RANKS * (3 * 4 * 8 + 30 * 2 * 4)
            self.assertEqual(read["bytes_read"], expected)
            self.assertEqual(record["verification"]["bytes_checked"], 2 * expected)
            self.assertEqual(len(record["total"]), 2)
            self.assertGreater(write["repetitions"][0]["parts"]["compute"]["max"], 0.02)
            self.assertEqual({path.name for path in self.home.iterdir()}, {"record.json", "workload.yaml"})

    def test_parts_of_an_array_are_where_they_belong(self) -> None:
        self.check_parts_of_an_array()
        self.check_parts_of_an_array(HALO)

    @unittest.skipUnless(launch.has_romio(), "needs Open MPI with ROMIO")
    def test_ranks_without_data_are_fine_with_romio(self) -> None:
        """It does not set the status of a rank that moves nothing."""
        with unittest.mock.patch.dict(os.environ, OMPI_MCA_io="^ompio"):
            self.check_parts_of_an_array()

    def check_parts_of_an_array(self, memory: str = "") -> None:
        """Ranks write columns of an array, each in one operation, and read those of the next one; and rows of it.

        Rank 0 moves nothing in one collective operation with a shape and in one without.
        """
        box = "offset: 1000, shape: [5, 2, ranks * 21], collective: true"
        self.write(
            "a: {api: mpiio, bytes: 1000 + 10 * ranks * 21}",
            "{create: a, mode: read-write}, {write: a, offset: rank * 10, size: 10}, "
            f"{{write: a, {box}, start: [0, 0, rank * 21], count: [5, 2, 21]}}, barrier, "
            f"{{read: a, {box}, start: [1, 0, (rank + 1) % ranks * 21 + 3], count: [3 * (rank > 0), 1, 18]}}, "
            "{read: a, offset: 1000 + rank * ranks * 21, size: ranks * 21}, "
            "{read: a, offset: rank * 10, size: 10 * (rank > 0), collective: true}, "
            "{read: a, offset: rank * 10, size: 10}, {close: a}",
            memory,
        )
        done = launch.run(RANKS, *self.options("--verify"))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        (phase,) = launch.record(self.json)["phases"]
        self.assertEqual(phase["bytes_written"], RANKS * (10 + 210))
        self.assertEqual(phase["bytes_read"], 2 * 3 * 18 + RANKS * (RANKS * 21 + 10) + (RANKS - 1) * 10)

    def test_parts_of_a_view_are_where_they_belong(self) -> None:
        """Ranks write two parts each in one operation, read those of the next one, and all in rows; one moves none."""
        mine = "[[rank * 5, 5], [100 + rank * 7, 7 * (rank > 0)]]"
        other = "[[(rank + 1) % ranks * 5, 5], [100 + (rank + 1) % ranks * 7, 7 * ((rank + 1) % ranks > 0)]]"
        self.write(
            "a: {api: mpiio, bytes: 100 + ranks * 7}",
            f"{{create: a, mode: read-write}}, {{write: a, list: {mine}, view: true, collective: true}}, barrier, "
            "{write: a, offset: 50 + rank, size: (rank > 0), view: true, collective: true}, barrier, "
            f"{{read: a, list: {other}, view: true, collective: true}}, "
            "{read: a, offset: 50 + rank, size: (rank > 0), view: true, collective: true}, "
            "{read: a, offset: 0, size: ranks * 5}, {read: a, offset: 107, size: (ranks - 1) * 7}, {close: a}",
        )
        done = launch.run(RANKS, *self.options("--verify"))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        (phase,) = launch.record(self.json)["phases"]
        self.assertEqual(phase["operations"], RANKS * 6)
        self.assertEqual(phase["bytes_written"], RANKS * 5 + (RANKS - 1) * 8)
        self.assertEqual(phase["bytes_read"], RANKS * (RANKS * 5 + (RANKS - 1) * 7) + RANKS * 5 + (RANKS - 1) * 8)

    def test_memory_of_transfers(self) -> None:
        """Four reads of 6 MiB go around in 16 MiB twice; new memory is 16 MiB more, and kept memory what is
        asked for, or a transfer."""
        for memory, mib in (
            ("reused, write: reused", 16),
            ("new, write: reused", 32),
            ("rotating", 16),
            ("12 * 2^20", 28),
            ("4096", 22),
        ):
            with self.subTest(memory=memory):
                self.write(
                    "a: {api: posix, bytes: 24 * 2^20}",
                    "{create: a, mode: read-write}, {write: a, offset: 0, size: 6 * 2^20, count: 4}, "
                    "{read: a, offset: 0, size: 6 * 2^20, count: 4}, {close: a}",
                    f"memory: {{read: {memory}}}\n",
                )
                done = launch.alone(*self.options("--verify"))
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                record = launch.record(self.json)
                self.assertEqual(record["verification"]["bytes_checked"], 24 * 2**20)
                self.assertEqual(record["memory"]["array_bytes"], mib * 2**20)

    def test_a_halo_is_around_parts_of_arrays_only(self) -> None:
        """One element on each side of each dimension, 8 bytes at the ends of rows of bytes; netCDF takes none."""
        for files, count, expected in (
            ("mpiio, bytes: 2^24 * 3", "offset: 0, shape: [3, 2^24], start: [0, 0], count: [2, 2^23]", 4 * (2**23 + 16)),
            ("mpiio, bytes: 2^24", "offset: 0, size: 2^24", 2**24),
            ("hdf5, datasets: {d: {type: int, shape: [5, 2^22]}}", "dataset: d, start: [3, 0], count: [2, 2^21]",
             4 * (2**21 + 2) * 4),
            ("pnetcdf, datasets: {d: {type: double, shape: [2^21]}}", "dataset: d, start: [0], count: [2^21]",
             (2**21 + 2) * 8),
            ("netcdf4, datasets: {d: {type: double, shape: [2^21]}}", "dataset: d, start: [0], count: [2^21]", 2**24),
        ):  # fmt: skip
            api = files.partition(",")[0]
            if api not in launch.apis():
                continue
            with self.subTest(api=api, count=count):
                self.write(
                    f"a: {{api: {files}}}",
                    f"{{create: a, mode: read-write}}, {{write: a, {count}, collective: true}}, "
                    f"{{read: a, {count}, collective: true}}, {{close: a}}",
                    HALO,
                )
                done = launch.alone(*self.options("--verify"))
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                record = launch.record(self.json)
                self.assertEqual(record["verification"]["bytes_checked"], 2**24)
                self.assertEqual(record["memory"]["array_bytes"], expected)

    def test_a_short_read_gets_what_there_is(self) -> None:
        """Half of it is behind the end of the file: an error, unless the description says so; not verified then."""
        for short, rc in (("false", 3), ("true", 0)):
            with self.subTest(short=short):
                self.write(
                    "a: {api: mpiio, bytes: 100}",
                    "{create: a, mode: read-write}, {write: a, offset: 0, size: 50}, {read: a, offset: 20, size: 10}, "
                    f"{{read: a, offset: 40, size: 20, count: 3, short: {short}}}, {{close: a}}",
                )
                done = launch.alone(*self.options("--verify"))
                self.assertEqual(done.returncode, rc, done.stderr)
        (phase,) = launch.record(self.json)["phases"]
        self.assertEqual((phase["operations"], phase["bytes_read"]), (5, 10))
        self.write(
            "a: {api: posix, bytes: 100}",
            "{create: a, mode: read-write}, {read: a, offset: 0, size: 1, short: true}, {close: a}",
        )
        self.assertIn("short: only a read of mpiio may be short", launch.alone(*self.options()).stderr)

    def test_a_file_has_two_interfaces(self) -> None:
        """Rank 0 writes a header by POSIX, all write behind it through MPI-IO, and read all of it by POSIX."""
        self.write(
            "a: {api: mpiio, count: 2, bytes: 100 + ranks * 50}, p: {api: posix, same_as: a, bytes: 100 + ranks * 50}",
            "{create: p, number: 1, ranks: rank == 0}, {write: p, number: 1, offset: 0, size: 100, ranks: rank == 0},"
            " {close: p, number: 1, ranks: rank == 0}, {open: a, number: 1, mode: write},"
            " {write: a, number: 1, offset: 100 + rank * 50, size: 50, collective: true}, {close: a, number: 1},"
            " barrier, {open: p, number: 1}, {read: p, number: 1, offset: 0, size: 100 + ranks * 50},"
            " {close: p, number: 1}",
        )
        done = launch.run(RANKS, *self.options("--verify", "--repeat", "2"))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        record = launch.record(self.json)
        self.assertEqual(record["verification"]["bytes_checked"], 2 * RANKS * (100 + RANKS * 50))
        # It is one file: nothing stays, and the space of one is needed.
        self.assertEqual(record["workload"]["needed_bytes"], 2 * (100 + RANKS * 50))
        self.assertEqual(sorted(path.name for path in self.home.iterdir()), ["record.json", "workload.yaml"])

    def test_a_second_interface_is_of_a_file_of_bytes(self) -> None:
        actions = "{create: a}, {close: a}"
        a, b = "a: {api: posix, bytes: 1}", "b: {api: mpiio, same_as: a, bytes: 1}"
        for files, words in (
            ("a: {api: posix, same_as: b, bytes: 1}", "expected the name of a file that is described before"),
            (f"{a}, b: {{api: mpiio, same_as: a, count: 2, bytes: 1}}", "it is that of 'same_as'"),
            (f"{a}, {b}, c: {{api: posix, same_as: b, bytes: 1}}", "a file of posix that is one of mpiio"),
        ):
            self.write(files, actions)
            done = launch.alone(*self.options())
            self.assertEqual(done.returncode, 2)
            self.assertIn(words, done.stderr)

    def test_what_nobody_wrote_is_found(self) -> None:
        self.write(
            "a: {api: posix, bytes: 100}",
            "{create: a, mode: read-write}, {write: a, offset: 50, size: 50}, {read: a, offset: 45, size: 10}, "
            "{close: a}",
        )
        done = launch.alone(*self.options("--verify"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("at byte 45 of the data: expected", done.stderr)
        self.assertEqual(launch.record(self.json)["status"], "failed")

    def test_a_failed_call_is_named_with_its_file(self) -> None:
        """The file is not there any more; the name is that of the system call."""
        for action, call in (("{stat: a}", "stat"), ("{remove: a}", "unlink"), ("{open: a}, {close: a}", "open")):
            with self.subTest(action=action):
                self.write(
                    "a: {api: posix, bytes: 100}",
                    f"{{create: a}}, {{write: a, offset: 0, size: 100}}, {{close: a}}, {{remove: a}}, {action}",
                )
                done = launch.alone(*self.options())
                self.assertEqual(done.returncode, 3, done.stderr)
                self.assertRegex(done.stderr, rf": {call} of \S+/data\.a\.0\.0: No such file or directory")

    def test_refused_before_anything_is_written(self) -> None:
        self.write("a: {api: posix, bytes: 100}", "{create: a}, {write: a, offset: 91, size: 10}, {close: a}")
        done = launch.alone(*self.options())
        self.assertEqual(done.returncode, 2)
        self.assertIn("workload.yaml, line 3, phases[0].actions[1]: offset 91 with 10 bytes is outside", done.stderr)
        self.assertEqual([path.name for path in self.home.iterdir()], ["workload.yaml"])
        self.write("a: {api: posix, bytes: 2^61}", "{create: a}, {write: a, offset: 91, size: 10}, {close: a}")
        done = launch.alone(*self.options())
        self.assertEqual(done.returncode, 3)
        self.assertIn("2305843009213693952 bytes are needed", done.stderr)

    def test_reader_and_schema_agree(self) -> None:
        """What the schema refuses the reader refuses; it also refuses what no schema can express."""
        try:
            import jsonschema
            import yaml
        except ImportError:
            self.skipTest("the Python packages jsonschema and PyYAML are not installed")
        home = pathlib.Path(__file__).parents[1]
        schema = jsonschema.Draft202012Validator(json.loads((home / "schema" / "workload.json").read_text()))
        for path in sorted((home / "workloads").glob("*.yaml")):
            original = yaml.safe_load(path.read_text())
            schema.validate(original)
            for seed in range(2):
                document = copy.deepcopy(original)
                damage(document, random.Random(f"{path.stem} {seed}"))
                self.file.write_text(json.dumps(document))
                done = launch.alone(*self.options("--check"))
                self.assertIn(done.returncode, (0, 2), done.stderr)
                if done.returncode == 0:
                    self.assertTrue(schema.is_valid(document), f"{path.stem}, seed {seed}")
                else:
                    self.assertRegex(done.stderr, "line 1[,:]")

    def test_command_line(self) -> None:
        self.write("a: {api: posix, bytes: 100}", "{create: a}, {write: a, offset: 90, size: 10}, {close: a}")
        done = launch.alone(*self.options("--check"))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("p: write, 10 bytes written, 0 bytes read, 1 operations", done.stdout)
        self.assertFalse(self.json.exists())
        for words, reason in {
            ("--api", "posix"): "--api has no meaning with --workload",
            ("--cache", "direct"): "use --cache drop",
            ("--set", "x=1"): "line 1: --set x: there is no such parameter; there are: none",
            ("--workload", "/nonexistent"): "--workload /nonexistent: No such file",
            ("--workload", "/"): "--workload /: Is a directory",
        }.items():
            done = launch.alone(*self.options(*words))
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(reason, done.stderr)
        self.assertIn("--check needs --workload", launch.alone("--check").stderr)

    def test_options_that_have_no_meaning_are_refused(self) -> None:
        self.write("a: {api: posix, bytes: 10}", "{create: a}, {close: a}", "parameters: {n: 1}\n")
        hints = self.home / "hints"
        hints.write_text("cb_nodes = 1\n")
        with_workload = [*WITH_WORKLOAD.split(), f"--hints-file={hints}"]
        done = launch.alone(*self.options(*with_workload))
        self.assertEqual(done.returncode, 0, done.stderr)
        for option in WITHOUT_WORKLOAD.split():
            with self.subTest(option=option):
                name = option.split("=")[0]
                done = launch.alone(*self.options("--check", option))
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertIn(f"{name} has no meaning with --workload", done.stderr)
        # Each option is in one of the two lists.
        words = [*self.options(*with_workload), *WITHOUT_WORKLOAD.split()]
        known = {word.split("=")[0] for word in words if word.startswith("--")}
        lines = launch.help_text().splitlines()
        in_help = {line.split()[0].split("=")[0] for line in lines if line.startswith("  --")}
        self.assertEqual(in_help, known | {"--help", "--version"})


if __name__ == "__main__":
    unittest.main()
