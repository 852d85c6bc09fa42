"""`system.yaml`: closed schema, faults with file, line and field, and the facts of the published machines."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from iowatch.benchmarks.hpcc import HPCC
from iowatch.benchmarks.ior import IOR
from iowatch.benchmarks.suites import SuiteCase
from iowatch.core import InputError, UsageError
from iowatch.reference.published import load_sources
from iowatch.site.file_system import FileSystem
from iowatch.site.system import SystemLimits, cases_of_system, load_system, read_system, system_names

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED_MACHINES = {
    "archer",
    "cirrus",
    "cosma5",
    "cosma6",
    "rdf-dac",
    "jasmin",
    "franklin",
    "marenostrum4",
    "hamburg",
    "athena",
    "thomas",
    "peta4-skylake",
}


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine" / "system.yaml"
    path.parent.mkdir()
    path.write_text(text)
    return path


def test_all_faults_are_reported_with_line_and_field(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "name: mine\ntitle: x\nsurprise: 3\nlimits:\n  nodes: -3\n  free_bytes: 3x\nfile_systems:\n"
        "- name: a\n  technology: ext4\n  source: s\n  peaks:\n  - {value: 3, unit: GB, source: s}\n",
    )
    with pytest.raises(InputError) as caught:
        read_system(path)
    faults = set(caught.value.message.splitlines())
    assert any(line.startswith(f"{path}:3:1: field 'surprise': unknown field") for line in faults)
    assert f"{path}:5:10: field 'limits.nodes': Input should be greater than 0 (found -3)" in faults
    assert any(line.startswith(f"{path}:6:15: field 'limits.free_bytes': ") for line in faults)
    assert any(line.startswith(f"{path}:12:22: field 'file_systems.0.peaks.0.unit': ") for line in faults)
    assert len(faults) == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: [", "not YAML"),
        ("", "Input should be a valid dictionary"),
        ("name: other\ntitle: x\n", "expected 'mine'"),
        ("name: mine\ntitle: ''\n", "field 'title'"),
        (
            "name: mine\ntitle: x\nsources: {a: Paper}\nnodes: [{name: n, source: 'b: page 1'}]\n",
            "is not listed in 'sources' \\(a\\)",
        ),
    ],
)
def test_invalid_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_system(write(tmp_path, text))


def test_unknown_system_is_refused_with_a_suggestion() -> None:
    with pytest.raises(UsageError, match="no system 'archr'") as caught:
        load_system("archr")
    assert "Did you mean 'archer'?" in (caught.value.hint or "")


def test_variables_in_scratch_are_expanded(var: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert load_system("local").scratch_directory() == var / "scratch"
    system = read_system(write(tmp_path, "name: mine\ntitle: x\nscratch: ${WHERE_ELSE}/io\n"))
    monkeypatch.delenv("WHERE_ELSE", raising=False)
    with pytest.raises(UsageError, match="names a variable that is not set"):
        system.scratch_directory()
    monkeypatch.setenv("WHERE_ELSE", "/lustre/me")
    assert system.scratch_directory() == Path("/lustre/me/io")


@pytest.mark.parametrize("place", ["lustre/me", "~/io"])
def test_relative_scratch_is_refused(tmp_path: Path, place: str) -> None:
    """It would measure the file system of the working directory."""
    system = read_system(write(tmp_path, f"name: mine\ntitle: x\nscratch: {place}\n"))
    with pytest.raises(UsageError, match=f"'{place}' is no absolute path"):
        system.scratch_directory()


MEASURED = """name: mine
title: x
scratch: {path: /lustre/io, file_system: work}
file_systems:
  - {name: work, technology: Lustre, source: s}
  - name: project
    mount: /project
    directory: /project/io
    limits: {total_bytes: 1t, files: 500}
    technology: GPFS
    source: s
"""


def test_measured_file_systems_have_their_own_directory_mount_and_limits(tmp_path: Path) -> None:
    text = MEASURED.replace("scratch: {", "limits: {files: 400, free_bytes: 1g, ranks: 8}\nscratch: {")
    system = read_system(write(tmp_path, text))
    default, project = system.measured_file_systems
    assert (default.name, default.parameter, default.declared.declared) == ("work", None, {})
    assert (project.parameter, project.path()) == ("project", Path("/project/io"))
    assert project.declared.declared == {"mount": "/project"}
    assert system.limits_on(None) == system.limits
    assert system.limits_on("project") == SystemLimits(files=400, free_bytes=2**30, ranks=8)  # the smaller ones
    with pytest.raises(UsageError, match="measures no file system 'projct'"):
        system.measured("projct")


def test_first_directory_is_the_default_without_scratch(tmp_path: Path) -> None:
    text = MEASURED.replace("scratch: {path: /lustre/io, file_system: work}\n", "")
    system = read_system(write(tmp_path, text))
    assert [(one.name, one.parameter) for one in system.measured_file_systems] == [("project", None)]
    assert system.scratch_directory() == Path("/project/io")
    (tmp_path / "mine/system.yaml").write_text(f"{text}    node_local: true\n")
    with pytest.raises(InputError, match="'project' is node-local and cannot be the default one"):
        read_system(tmp_path / "mine/system.yaml")


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("    limits: {total_bytes: 1t, files: 500}\n", "", "'project': a directory, but no limits"),
        ("total_bytes: 1t, ", "", r"file_systems.1.limits.total_bytes"),
        ("directory: /project/io", "directory: /lustre/io/", "'project' have the same directory, /lustre/io"),
        ("    directory: /project/io\n", "", "'project': limits, but no directory"),
        ("file_system: work", "file_system: wrk", "'wrk' is not an entry of 'file_systems' without a directory"),
        (", file_system: work", "", "name the entry of the default one, for example .*file_system: work"),
        ("name: work,", "name: work, node_local: true,", "'work': node_local, but no directory"),
        ("name: project", "name: all", "file system 'all': expected a name of"),
        ("name: project", "name: my project", "file system 'my project': expected a name of"),
        ("/project/io", "{path: /project/io, file_system: x}", "unknown field"),
    ],
)
def test_file_systems_that_cannot_be_measured_are_refused(
    tmp_path: Path, before: str, after: str, message: str
) -> None:
    assert before in MEASURED
    with pytest.raises(InputError, match=message):
        read_system(write(tmp_path, MEASURED.replace(before, after)))


def test_directories_of_targets_are_those_of_ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISKS", "/disks")
    text = MEASURED.replace("name: work,", "name: work, targets: 6, target_directories: ['${DISKS}/[0-1]/t[08-10]'],")
    text = text.replace(
        "    directory: /project", "    target_directories: [/project/a, /project/b]\n    directory: /project"
    )
    default, project = read_system(write(tmp_path, text)).measured_file_systems
    numbers = [(disk, target) for disk in (0, 1) for target in ("08", "09", "10")]
    assert default.target_paths() == tuple(Path(f"/disks/{disk}/t{target}") for disk, target in numbers)
    assert (default.targets, project.targets) == (6, None)
    assert project.target_paths() == (Path("/project/a"), Path("/project/b"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("target_directories: [/a, /b/../a]", "target_directories has /a twice"),
        ("target_directories: ['/a/[5-3]']", "in target_directories is an empty range"),
        ("targets: 3, target_directories: ['/a/[0-3]']", "targets is 3, target_directories has 4"),
    ],
)
def test_contradicting_directories_of_targets_are_refused(tmp_path: Path, fields: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_system(write(tmp_path, MEASURED.replace("name: work,", f"name: work, {fields},")))


def test_directories_of_targets_need_a_measured_file_system(tmp_path: Path) -> None:
    other = "  - {name: other, technology: NFS, source: s, target_directories: [/a]}\n"
    with pytest.raises(InputError, match="'other': target_directories, but it is not measured"):
        read_system(write(tmp_path, MEASURED.replace("file_systems:\n", f"file_systems:\n{other}")))


def test_cases_are_measured_on_the_file_systems_of_suite_or_command(tmp_path: Path) -> None:
    """The default one by default; hpcc, which writes no files, only there."""
    system = read_system(write(tmp_path, MEASURED))
    options = IOR.read_options({"op": "write", "api": "posix", "ranks": 4})
    plain = SuiteCase("mine", "ior", "single", options, "optional", 60)
    memory = SuiteCase("mine", "hpcc", "single", HPCC.read_options({"ranks": 4}), "optional", 60)

    def runs(case: SuiteCase, *chosen: str, suite: tuple[str, ...] = ()) -> list[str]:
        return [placed.run_name for placed in cases_of_system([replace(case, file_systems=suite)], system, chosen)]

    both = ["ior", "ior:file_system=project"]
    assert runs(plain) == both[:1]
    assert runs(plain, suite=("all",)) == runs(plain, "all") == runs(plain, "work", "project") == both
    assert runs(plain, suite=("project",)) == runs(plain, "project", suite=("all",)) == both[1:]
    assert (runs(memory, "all"), runs(memory, "project")) == (["hpcc"], [])


def test_all_nodes_are_those_of_each_partition(tmp_path: Path) -> None:
    """Nodes of a partition: 2 small ones; 3 and 1 of two types in `wide`; a number that its suite names is one case."""
    options = HPCC.read_options({"ranks": 2})
    names = ("nodes=1", "nodes=4", "nodes=all")
    cases = [SuiteCase("mine", "hpcc", name, options, "optional", 60, ranks_per_node=2) for name in names]
    cases[2] = replace(cases[2], is_on_all_nodes=True)
    partitions = [("small", "count: 2"), ("wide", "count: 3"), ("wide", "count: 1"), ("fat", "cores: 4")]
    entries = [f"  - {{name: {name}, {fact}, source: here}}\n" for name, fact in partitions]

    def runs(facts: str) -> list[tuple[str, int]]:
        directory = tmp_path / str(len(list(tmp_path.iterdir())))
        directory.mkdir()
        system = read_system(write(directory, MEASURED + facts))
        return [(case.name, case.ranks) for case in cases_of_system(cases, system)]

    named = [("nodes=1", 2), ("nodes=4", 2)]
    nodes = "nodes:\n" + "".join(entries)
    assert runs(nodes) == [*named, ("nodes=2", 4)]
    assert runs(nodes + "limits: {nodes: 3}\n") == [*named, ("nodes=2", 4), ("nodes=3", 6)]
    # A benchmark that needs more nodes is not run on a partition with fewer.
    cases[2] = replace(cases[2], options=HPCC.read_options({"ranks": 3, "nodes": 3}))
    assert runs(nodes) == named
    assert runs("limits: {nodes: 2}\n") == [*named, ("nodes=all", 3)]
    cases[2] = replace(cases[2], options=options)
    # Nobody said how many there are: the plan says so.
    assert runs("") == [*named, ("nodes=all", 2)]
    assert runs("limits: {nodes: 1}\n") == named


def test_published_machines_cite_sources_by_key() -> None:
    keys = {source.key for source in load_sources().values()}
    for name in PUBLISHED_MACHINES:
        system = load_system(name)
        assert set(system.sources) <= keys
        peaks = (peak for file_system in system.file_systems for peak in file_system.peaks)
        for block in (*system.nodes, *system.interconnect, *system.file_systems, *system.software, *peaks):
            cited = set(re.findall(r"([\w-]+): ", block.source))
            assert cited, (name, block.source)
            assert cited <= set(system.sources), (name, block.source)


def test_published_machines_are_described_and_retired() -> None:
    assert set(system_names()) >= PUBLISHED_MACHINES
    for name in PUBLISHED_MACHINES:
        system = load_system(name)
        assert system.retired
        assert system.sources
        assert system.nodes
        assert system.file_systems


# Printed values: [lawrence2017], section 4 (GB/s or GiB/s as there); [antypas2009], section 2; [azcarate-mn4],
# Benchmarks; [bartz2014], section 4.1.
# 1 GB/s = 10^9 / 2^20 MiB/s.
PEAKS = {
    ("archer", "fs2"): 30e9,
    ("archer", "fs3"): 30e9,
    ("archer", "fs4"): 35e9,
    ("cirrus", "lustre"): 10 * 2**30,
    ("cosma5", "gpfs"): 20e9,
    ("rdf-dac", "gpfs2"): 7e9,
    ("jasmin", "panasas"): 1.25e9,
    ("franklin", "scratch"): 11e9,
    ("marenostrum4", "projects"): 12.5e9,
    ("hamburg", "lustre"): 1170e6,
}


def find_file_system(system: str, name: str) -> FileSystem:
    return next(known for known in load_system(system).file_systems if known.name == name)


@pytest.mark.parametrize(("where", "bytes_per_s"), PEAKS.items())
def test_theoretical_peaks_match_the_sources(where: tuple[str, str], bytes_per_s: float) -> None:
    system, file_system = where
    peaks = find_file_system(system, file_system).peaks
    assert {round(peak.mib_per_s, 6) for peak in peaks} == {round(bytes_per_s / 2**20, 6)}


# OSTs and default stripe count: [lawrence2017], section 4; [turner2018], Table 4; [antypas2009], section 2.
LUSTRE = {
    ("archer", "fs2"): (48, 4),
    ("archer", "fs3"): (48, 4),
    ("archer", "fs4"): (56, 4),
    ("cirrus", "lustre"): (14, 1),
    ("cosma6", "data"): (120, 1),
    ("franklin", "scratch"): (80, None),
    ("thomas", "lustre"): (10, None),
    ("peta4-skylake", "lustre"): (24, None),
}


@pytest.mark.parametrize(("where", "expected"), LUSTRE.items())
def test_lustre_targets_and_striping_match_the_sources(
    where: tuple[str, str], expected: tuple[int, int | None]
) -> None:
    file_system = find_file_system(*where)
    assert file_system.technology == "Lustre"
    assert (file_system.targets, file_system.striping and file_system.striping.count) == expected


def test_documents_of_the_sources_exist(outside_data: Path) -> None:
    """Each published source names its file among the source documents."""
    for number, source in load_sources().items():
        assert source.file.startswith(number)
        assert (outside_data / "seeds" / source.file).is_file()


def test_numbers_of_the_sources_are_in_the_documents(outside_data: Path) -> None:
    """A spot check: values as printed are in the text of the cited document."""
    texts = {
        source.key: re.sub(r"\s|\\text|[{}]", "", (outside_data / "seeds" / source.file).read_text())
        for source in load_sources().values()
    }
    for name in PUBLISHED_MACHINES:
        for file_system in load_system(name).file_systems:
            for peak in file_system.peaks:
                text = texts[peak.source.partition(":")[0]]
                spellings = {f"{peak.value:g}{peak.unit}", f"{peak.value:g}{peak.unit.replace('B/s', 'Bytes/s')}"}
                assert any(spelling in text for spelling in spellings), (name, peak)
