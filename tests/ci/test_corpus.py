"""`bench/corpus.py`: what is a complete output, and what is compared with what; on small outputs of this repository."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from iowatch.benchmarks.tables.maps import IMPORT_FORMATS, load_map
from tests.benchmarks.corpus import DATA
from tests.benchmarks.tables import DATA as TABLES
from tests.conftest import ROOT

# Behind the installed packages: bench/darshan.py is not PyDarshan.
sys.path.append(str(ROOT / "bench"))
import complete_outputs
import corpus

# Own text in the form of mdtest 1.9.3: 4 tasks created at most 4 x 21,700 items in the 600 s between its first and last
# line; the rate counts all 400 million (https://github.com/hpc/ior/issues/119).
STONEWALLED = """-- started at 11/02/2026 18:52:20 --

mdtest-1.9.3 was launched with 4 total task(s) on 1 node(s)
Command line used: mdtest "-C" "-W" "300" "-u" "-F" "-n" "100000000" "-d" "/scratch/out"
4 tasks, 400000000 files
Continue stonewall hit min: 20100 max: 21700 avg: 20900.0
   File creation     :     666666.667     666666.667     666666.667          0.000
-- finished at 11/02/2026 19:02:20 --
"""


@pytest.fixture
def io500_run(tmp_path: Path) -> Path:
    """A folder with both result files of a run of IO500."""
    shutil.copy(TABLES / "io500-isc26-result.txt", tmp_path / "result.txt")
    shutil.copy(TABLES / "io500-isc26-result_summary.txt", tmp_path / "result_summary.txt")
    return tmp_path


def test_result_files_of_io500_are_compared_with_each_other(io500_run: Path) -> None:
    """Eight phases are valid, as in the test of the map."""
    for name, kind in (("result.txt", corpus.RESULT), ("result_summary.txt", corpus.SUMMARY)):
        (assessment,) = corpus.assess_file(io500_run / name, ())
        assert (assessment.kind, assessment.incomplete, assessment.refusal) == (kind, None, None)
        assert (assessment.compared, assessment.differences) == (8, ())


def test_wrong_value_of_a_parser_is_a_difference(io500_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the map took GiB/s for GB/s: a factor of 1.07."""
    own_map = io500_run / "io500.yaml"
    own_map.write_text(IMPORT_FORMATS["io500"].map_file.read_text().replace("GiB/s", "GB/s"))
    wrong = load_map(str(own_map))
    monkeypatch.setattr(corpus, "load_map", lambda _name: wrong)
    (assessment,) = corpus.assess_file(io500_run / "result.txt", ())
    phases = [difference.split()[0] for difference in assessment.differences]
    assert phases == ["ior-easy-read", "ior-hard-read", "ior-rnd4K-easy-read"]


def test_result_file_without_a_phase_is_not_complete(io500_run: Path) -> None:
    path = io500_run / "result.txt"
    text = path.read_text()
    path.write_text(text[: text.index("[mdtest-hard-delete]")])
    (assessment,) = corpus.assess_file(path, ())
    assert assessment.incomplete == "1 of 12 phases are absent"


def test_output_is_complete_by_its_last_line(tmp_path: Path) -> None:
    whole = (DATA / "ior-3.0.1-posix.txt").read_text()
    (tmp_path / "whole").write_text(whole)
    (tmp_path / "cut").write_text(whole[: whole.index("Finished:")])
    (tmp_path / "both").write_text(whole + whole)
    whole_run, cut, both = (corpus.assess_file(tmp_path / name, ()) for name in ("whole", "cut", "both"))
    assert [item.incomplete for item in (*whole_run, *cut, *both)] == [None, "no last line", None, None]
    assert (whole_run[0].refusal, whole_run[0].differences) == (None, ())
    assert whole_run[0].compared > 0


def test_phase_of_io500_has_the_official_figure(io500_run: Path) -> None:
    """Here another run of mdtest left its output in the folder."""
    path = io500_run / "mdtest-hard-delete.txt"
    path.write_text(STONEWALLED.replace("File creation", "File removal "))
    (assessment,) = corpus.assess_file(path, ())
    assert assessment.incomplete == "the official figure is of another run"


def test_rate_of_items_that_were_not_created_is_not_complete() -> None:
    assert complete_outputs.counts_items_not_created(STONEWALLED)
    # 86,800 items in 600 s.
    assert not complete_outputs.counts_items_not_created(STONEWALLED.replace("666666.667", "   144.667"))
    assert not complete_outputs.counts_items_not_created(STONEWALLED.replace("max: 21700", "max: 100000000"))


def test_sources_and_configurations_are_no_outputs(tmp_path: Path) -> None:
    (tmp_path / "config.ini.orig").write_text("[ior-easy-write]\napi = POSIX\n")
    (tmp_path / "README.md").write_text("IOR-4.0.0: MPI Coordinated Test of Parallel I/O\n")
    assert [corpus.assess_file(path, ()) for path in tmp_path.iterdir()] == [[], []]
