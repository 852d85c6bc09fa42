"""Differences between two stacks."""

from __future__ import annotations

from iowatch.site.stack.records import PartDifference, Stack, StackPart, diff_stacks
from tests.builders import build_stack


def stack(name: str, *parts: StackPart) -> Stack:
    return build_stack(*parts, name=name, status="locked")


def test_equal_stacks_have_no_difference() -> None:
    part = StackPart("hdf5", "1.14.6", {"mpi": "true"}, "a")
    result = diff_stacks(stack("one", part), stack("two", part))
    assert (result.differences, result.rebuilt, result.same) == ((), (), 1)


def test_version_differences_are_listed_first() -> None:
    left = stack(
        "l",
        StackPart("a", "1", {"x": "true"}, "1", compiler="gcc@12"),
        StackPart("b", "1", {}, "2"),
        StackPart("c", "1"),
    )
    right = stack(
        "r",
        StackPart("a", "1", {"x": "false"}, "3", compiler="gcc@13"),
        StackPart("b", "2", {}, "4"),
        StackPart("d", "7"),
    )
    assert diff_stacks(left, right).differences == (
        PartDifference("b", "version", "1", "2"),
        PartDifference("c", "version", "1", None),
        PartDifference("d", "version", None, "7"),
        PartDifference("a", "compiler", "gcc@12", "gcc@13"),
        PartDifference("a", "variant x", "true", "false"),
    )


def test_rebuilt_part_is_no_difference() -> None:
    """Same version and variants, another hash: something below it differs."""
    left = stack("l", StackPart("ior", "4.0.0", {}, "1"), StackPart("openmpi", "4.1.4", {}, "2"))
    right = stack("r", StackPart("ior", "4.0.0", {}, "3"), StackPart("openmpi", "5.0.10", {}, "4"))
    result = diff_stacks(left, right)
    assert result.rebuilt == ("ior",)
    assert [row.part for row in result.differences] == ["openmpi"]


def test_unknown_fields_of_one_side_are_no_difference() -> None:
    """A stack of the operating system has few variants and no target."""
    left = stack("l", StackPart("hdf5", "1.10.8", {"mpi": "true"}))
    right = stack("r", StackPart("hdf5", "1.10.8", {"mpi": "true", "hl": "true"}, "h", target="x86_64_v2"))
    assert diff_stacks(left, right).differences == ()


def test_settings_alone_are_a_difference() -> None:
    """Two stacks of the same modules that differ in a hint."""

    def with_settings(**settings: str) -> Stack:
        return build_stack(StackPart("hdf5", "1.14.6"), name="s", kind="modules", settings=settings)

    left, right = with_settings(ROMIO_HINTS="/a", OMPI_MCA_io="ompio"), with_settings(OMPI_MCA_io="romio321")
    result = diff_stacks(left, right)
    assert result.differences == (
        PartDifference("environment", "OMPI_MCA_io", "ompio", "romio321"),
        PartDifference("environment", "ROMIO_HINTS", "/a", None),
    )
    # The settings of a stack that is only a lock file are not known.
    assert diff_stacks(left, stack("lock", StackPart("hdf5", "1.14.6"))).differences == ()
