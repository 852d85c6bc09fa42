"""What differs between two Spack stacks, and the environment of a hybrid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from iowatch.core import InputError, UsageError
from iowatch.experiments.common.spack_graph import (
    SpackGraph,
    describe_change,
    graph_of_specs,
    hybrid_environment,
    package_changes,
    read_graph,
)

from .spack_specs import Spec, all_specs, installed_stack, spec

MPI = spec("openmpi", "4.1.4", external="/usr", romio=True)


def graph(*tops: Spec) -> SpackGraph:
    known = all_specs(*tops)
    return graph_of_specs(known, known.keys(), "one")


def libraries(zlib: Spec, netcdf: str, **variants: object) -> SpackGraph:
    """benchio on netcdf-c on hdf5 on a provider of zlib-api and the machine's MPI."""
    hdf5 = spec("hdf5", "1.14.6", zlib, MPI, virtuals={zlib["name"]: "zlib-api", "openmpi": "mpi"}, **variants)
    netcdf_c = spec("netcdf-c", netcdf, hdf5, MPI, virtuals={"openmpi": "mpi"})
    return graph(spec("benchio", "1.0.0", netcdf_c, hdf5))


NG, ZLIB = spec("zlib-ng", "2.2.4"), spec("zlib", "1.3.1")
GOOD, BAD = libraries(NG, "4.9.3"), libraries(ZLIB, "4.9.2")


def packages(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = document["spack"]["packages:"]
    return found


def test_changes_are_what_differs_by_itself() -> None:
    """hdf5 and benchio are only rebuilt; the two packages that provide zlib-api are one change."""
    changes = package_changes(GOOD, BAD)
    assert [(one.name, one.good, one.bad) for one in changes] == [
        ("zlib-api", "zlib-ng", "zlib"), ("netcdf-c", "netcdf-c", "netcdf-c")
    ]  # fmt: skip
    assert describe_change(changes[0], GOOD, BAD) == ("zlib-ng 2.2.4", "zlib 1.3.1")
    assert describe_change(changes[1], GOOD, BAD) == ("4.9.3", "4.9.2")


def test_variants_and_flags_are_a_change_of_their_package() -> None:
    bad = libraries(NG, "4.9.3", szip=True, cflags=["-O0"])
    (change,) = package_changes(GOOD, bad)
    assert describe_change(change, GOOD, bad) == ("1.14.6", '1.14.6 cflags="-O0" +szip')


def test_dependency_that_only_one_side_needs_follows_from_its_package() -> None:
    good = graph(spec("netcdf-c", "4.9.3"))
    bad = graph(spec("netcdf-c", "4.10.0", spec("libxml2", "2.13")))
    (change,) = package_changes(good, bad)
    assert change.name == "netcdf-c"
    assert packages(hybrid_environment(good, bad, [change], []))["libxml2"]["require"] == [
        "@=2.13 build_system=cmake target=x86_64_v2"
    ]


def test_package_on_top_that_only_one_side_has_is_a_change() -> None:
    good, bad = graph(spec("hdf5", "1.14.6")), graph(spec("hdf5", "1.14.6"), spec("ior", "4.0.0"))
    (change,) = package_changes(good, bad)
    assert describe_change(change, good, bad) == (None, "4.0.0")
    assert hybrid_environment(good, bad, [], [])["spack"]["specs"] == ["hdf5"]
    assert hybrid_environment(good, bad, [change], [])["spack"]["specs"] == ["hdf5", "ior"]
    (change,) = package_changes(bad, good)
    assert hybrid_environment(bad, good, [change], [])["spack"]["specs"] == ["hdf5"]


def test_hybrid_requires_the_chosen_side_and_the_rest_of_good() -> None:
    swap, netcdf = package_changes(GOOD, BAD)
    for chosen, provider, version in (
        ([], "zlib-ng", "4.9.3"),
        ([swap], "zlib", "4.9.3"),
        ([netcdf], "zlib-ng", "4.9.2"),
    ):
        document = hybrid_environment(GOOD, BAD, chosen, ["/common.yaml"])
        found = packages(document)
        assert document["spack"]["specs"] == ["benchio"]
        assert document["spack"]["include"] == ["/common.yaml"]
        assert found["zlib-api"] == {"require": [provider]}
        assert found["netcdf-c"] == {"require": [f"@={version} build_system=cmake target=x86_64_v2"]}
    assert found["openmpi"] == {
        "require": ["@=4.1.4"],
        "externals": [{"spec": "openmpi@=4.1.4 +romio", "prefix": "/usr"}],
        "buildable": False,
    }


def test_package_that_is_built_on_one_side_and_of_the_machine_on_the_other_is_a_change() -> None:
    good, bad = graph(MPI), graph(spec("openmpi", "4.1.4", romio=True))
    (change,) = package_changes(good, bad)
    assert describe_change(change, good, bad) == ("4.1.4 of the machine", "4.1.4 built")
    assert "externals" not in packages(hybrid_environment(good, bad, [change], []))["openmpi"]


def test_graph_is_read_from_the_installed_packages(tmp_path: Path) -> None:
    netcdf = spec("netcdf-c", "4.9.3", NG, virtuals={"zlib-ng": "zlib-api"})
    found = read_graph(installed_stack(tmp_path, "good", netcdf))
    assert found.roots == ("netcdf-c",)
    assert found.providers == {"zlib-api": "zlib-ng"}


def test_damaged_record_of_a_package_is_an_error(tmp_path: Path) -> None:
    stack = installed_stack(tmp_path, "good", NG)
    Path(stack.parts[0].prefix or "", ".spack", "spec.json").write_text("{")
    with pytest.raises(InputError, match="not readable as a spec of Spack"):
        read_graph(stack)


@pytest.mark.parametrize(
    ("tops", "message"),
    [
        ((spec("hdf5", "1", dev_path="/src/hdf5"),), "builds hdf5 from a source directory"),
        ((spec("gcc", "12"), spec("gcc", "13")), "contains a package twice"),
    ],
)
def test_stacks_that_cannot_be_resolved_again_are_refused(tops: tuple[Spec, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        graph(*tops)
