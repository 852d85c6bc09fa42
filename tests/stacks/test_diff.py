"""What differs between two stacks."""

from __future__ import annotations

from iowatch.stacks.diff import Difference, diff
from iowatch.stacks.model import Part, Stack


def stack(name: str, *parts: Part) -> Stack:
    return Stack(name, "local", "spack", "locked", parts)


def test_equal_stacks_do_not_differ() -> None:
    part = Part("hdf5", "1.14.6", {"mpi": "true"}, "a")
    result = diff(stack("one", part), stack("two", part))
    assert (result.differences, result.rebuilt, result.same) == ((), (), 1)


def test_versions_come_first_then_the_rest() -> None:
    left = stack(
        "l", Part("a", "1", {"x": "true"}, "1", compiler="gcc@12"), Part("b", "1", {}, "2"), Part("c", "1")
    )
    right = stack(
        "r", Part("a", "1", {"x": "false"}, "3", compiler="gcc@13"), Part("b", "2", {}, "4"), Part("d", "7")
    )
    assert diff(left, right).differences == (
        Difference("b", "version", "1", "2"),
        Difference("c", "version", "1", None),
        Difference("d", "version", None, "7"),
        Difference("a", "compiler", "gcc@12", "gcc@13"),
        Difference("a", "variant x", "true", "false"),
    )


def test_rebuilt_is_not_changed() -> None:
    """Same version and variants, another hash: something below it differs."""
    left = stack("l", Part("ior", "4.0.0", {}, "1"), Part("openmpi", "4.1.4", {}, "2"))
    right = stack("r", Part("ior", "4.0.0", {}, "3"), Part("openmpi", "5.0.10", {}, "4"))
    result = diff(left, right)
    assert result.rebuilt == ("ior",)
    assert [row.part for row in result.differences] == ["openmpi"]


def test_what_one_side_does_not_know_is_no_difference() -> None:
    """A stack of the operating system tells few variants and no target."""
    left = stack("l", Part("hdf5", "1.10.8", {"mpi": "true"}))
    right = stack("r", Part("hdf5", "1.10.8", {"mpi": "true", "hl": "true"}, "h", target="x86_64_v2"))
    assert diff(left, right).differences == ()
