"""Layouts and quotas of Lustre, as the program `lfs` prints them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from iowatch.core import format_size


@dataclass(frozen=True)
class LayoutComponent:
    """The striping of a part of each file.

    Attributes:
        end_bytes: offset behind it; None: it has no end.
        stripe_count: number of OSTs; -1: all; 0: the file system's default.
        stripe_bytes: stripe size.
        on_mdt: whether it is on the metadata server (data-on-MDT), so that it has no stripes.
    """

    end_bytes: int | None
    stripe_count: int
    stripe_bytes: int
    on_mdt: bool = False

    @property
    def text(self) -> str:
        """Return stripe count and size, for example `8 of 4 MiB`."""
        if self.on_mdt:
            return "on the metadata server"
        return f"{self.stripe_count} of {format_size(self.stripe_bytes)}"


@dataclass(frozen=True)
class FileLayout:
    """The layout of new files of a directory.

    Attributes:
        components: in order of their offsets; empty if `lfs` printed none. Several make a progressive layout.
        mirrors: number of copies, each with these components.
    """

    components: tuple[LayoutComponent, ...] = ()
    mirrors: int = 1

    @property
    def plain(self) -> LayoutComponent | None:
        """Return the striping of the whole file; None if it has not the same everywhere, or there is no layout."""
        if len(self.components) != 1 or self.mirrors > 1 or self.components[0].on_mdt:
            return None
        return self.components[0]

    @property
    def text(self) -> str | None:
        """Return a description, for example `up to 1 MiB: 1 of 1 MiB, then 8 of 4 MiB`; None without a layout."""
        if not self.components:
            return None
        sentences = []
        for component in self.components:
            if component.end_bytes is not None:
                sentences.append(f"up to {format_size(component.end_bytes)}: {component.text}")
            elif len(self.components) > 1:
                sentences.append(f"then {component.text}")
            else:
                sentences.append(component.text)
        copies = f"{self.mirrors} mirrors: " if self.mirrors > 1 else ""
        return copies + ", ".join(sentences)


def parse_striping(text: str) -> FileLayout:
    """Return the layout that `lfs getstripe -d DIR` printed.

    A layout with components (Lustre Operations Manual, "Progressive File Layout") has one block for each, which begins
    with `lcme_id`. Otherwise the first striping in the output is that of the directory.
    """
    header, *blocks = re.split(r"(?=\blcme_id:)", text)
    if not blocks:
        component = _parse_component(header)
        return FileLayout((component,) if component else ())
    components: list[LayoutComponent] = []
    mirrors = 0
    for block in blocks:
        # Each mirror has its own components, which are alike; the first one's are kept.
        start = re.search(r"\blcme_extent\.e_start:\s*(\d+)", block)
        component = _parse_component(block)
        if start is not None and int(start[1]) == 0 and component is not None:
            mirrors += 1
        if mirrors <= 1 and component is not None:
            components.append(component)
    return FileLayout(tuple(components), max(1, mirrors))


def _parse_component(block: str) -> LayoutComponent | None:
    """Return a component; None if it has no stripes of its own, as the extension of another one."""
    count = re.search(r"stripe_count:\s*(-?\d+)", block)
    size = re.search(r"stripe_size:\s*(\d+)", block)
    if count is None or size is None:
        return None
    end = re.search(r"\blcme_extent\.e_end:\s*(\d+)", block)
    pattern = re.search(r"\b(?:lmm_)?pattern:\s*(\S+)", block)
    return LayoutComponent(
        end_bytes=int(end[1]) if end else None,
        stripe_count=int(count[1]),
        stripe_bytes=int(size[1]),
        on_mdt=pattern is not None and "mdt" in pattern[1],
    )


@dataclass(frozen=True)
class RemainingQuota:
    """What a user may still write; None without a limit.

    Attributes:
        is_exact: whether all servers answered; else more may be used than `lfs` knows.
    """

    size_bytes: int | None = None
    inodes: int | None = None
    is_exact: bool = True


# File system, then used (kilobytes), quota, limit and grace, then the same for files. `*` marks an excess, and a number
# in brackets lacks what a server that did not answer would have added.
_NUMBER = r"(\[?)(\d+)\*?\]?\*?"
_QUOTA = re.compile(rf"\s{_NUMBER}\s+\[?\d+\*?\]?\s+{_NUMBER}\s+\S+\s+{_NUMBER}\s+\[?\d+\*?\]?\s+{_NUMBER}(?:\s|$)")


def parse_quota(text: str) -> RemainingQuota | None:
    """Return what is left by an output of `lfs quota -q -u UID DIR`; None if it has no numbers of this form.

    Source: Lustre Operations Manual, "Configuring and Managing Quotas"; a limit of 0 means no limit.
    """
    match = _QUOTA.search(text)
    if match is None:
        return None
    kilobytes, kilobytes_limit, files, files_limit = (int(number) for number in match.group(2, 4, 6, 8))
    brackets = match.group(1, 3, 5, 7)
    return RemainingQuota(
        size_bytes=(kilobytes_limit - kilobytes) * 1024 if kilobytes_limit else None,
        inodes=files_limit - files if files_limit else None,
        is_exact=not any(brackets),
    )
