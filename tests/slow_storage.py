"""Slow storage for measurements on one machine: a disk that keeps a set rate, and a store limited by a control group.

Both need root. The disk also needs libfuse3-dev, a C compiler and ext4; the store needs control groups of version 1.
The limits of blkio let bursts of 20 to 100 ms pass; the disk has no bursts.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

# A file in memory that is read and written at the rate of /rate (bytes per second), one request after the other.
_DISK_SOURCE = r"""
#define FUSE_USE_VERSION 31
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static int memory;
static double rate;
static struct timespec free_at;

static void take_time(size_t bytes) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (now.tv_sec > free_at.tv_sec || (now.tv_sec == free_at.tv_sec && now.tv_nsec > free_at.tv_nsec)) free_at = now;
  long ns = free_at.tv_nsec + (long)(1e9 * bytes / rate);
  free_at.tv_sec += ns / 1000000000;
  free_at.tv_nsec = ns % 1000000000;
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &free_at, NULL);
}
static int attributes(const char *path, struct stat *s, struct fuse_file_info *f) {
  (void)f;
  memset(s, 0, sizeof *s);
  s->st_mode = strcmp(path, "/") ? S_IFREG | 0600 : S_IFDIR | 0700;
  s->st_nlink = 1;
  s->st_size = !strcmp(path, "/image") ? 4l << 30 : 32;
  return strcmp(path, "/") && strcmp(path, "/image") && strcmp(path, "/rate") ? -ENOENT : 0;
}
static int open_file(const char *path, struct fuse_file_info *f) { (void)path; f->direct_io = 1; return 0; }
static int truncate_file(const char *path, off_t n, struct fuse_file_info *f) {
  (void)path, (void)n, (void)f;
  return 0;
}
static int read_file(const char *path, char *b, size_t n, off_t at, struct fuse_file_info *f) {
  (void)path, (void)f;
  take_time(n);
  return (int)pread(memory, b, n, at);
}
static int write_file(const char *path, const char *b, size_t n, off_t at, struct fuse_file_info *f) {
  (void)f;
  if (!strcmp(path, "/rate")) { rate = atof(b); return (int)n; }
  take_time(n);
  return (int)pwrite(memory, b, n, at);
}
static const struct fuse_operations operations = {
  .getattr = attributes, .open = open_file, .truncate = truncate_file, .read = read_file, .write = write_file};

int main(int n, char **words) {
  memory = memfd_create("disk", 0);
  rate = 1e12;
  return memory < 0 || ftruncate(memory, 4l << 30) ? 1 : fuse_main(n, words, &operations, NULL);
}
"""


class SlowStorageError(RuntimeError):
    """A command that the machine refused."""


def run_command(*command: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a program of the machine.

    Raises:
        SlowStorageError: it does not exist, or it failed and `check` is true.
    """
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, check=False, capture_output=True, text=True)
    except OSError as error:
        raise SlowStorageError(f"{words[0]}: {error.strerror}") from error
    if check and done.returncode:
        reason = done.stderr.strip() or f"exit code {done.returncode}"
        raise SlowStorageError(f"{' '.join(words)}: {reason}")
    return done


@dataclass(frozen=True)
class PacedDisk:
    """A mounted ext4 file system on a disk that keeps its rate, also within milliseconds."""

    directory: Path

    @property
    def mount_point(self) -> Path:
        """Where the file system is mounted."""
        return self.directory / "mnt"

    def set_rate(self, bytes_per_s: int) -> None:
        """Set the rate of reads and writes."""
        (self.directory / "disk" / "rate").write_text(f"{bytes_per_s:<31}\n")


def mount_paced_disk(directory: Path) -> PacedDisk:
    """Mount a disk of 4 GiB in memory: ext4 on a loop device on a file of FUSE; `unmount_paced_disk` removes it.

    Raises:
        SlowStorageError: the machine refused a command.
    """
    program, source = directory / "slow-disk", directory / "slow-disk.c"
    if not program.exists():
        source.write_text(_DISK_SOURCE)
        fuse_flags = run_command("pkg-config", "--cflags", "--libs", "fuse3").stdout.split()
        run_command("cc", "-O2", "-o", program, source, *fuse_flags)
    disk = PacedDisk(directory)
    (directory / "disk").mkdir(exist_ok=True)
    disk.mount_point.mkdir(exist_ok=True)
    run_command(program, "-s", directory / "disk")
    device = run_command("losetup", "-f", "--show", directory / "disk" / "image").stdout.strip()
    run_command("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", device)
    run_command("mount", device, disk.mount_point)
    return disk


def unmount_paced_disk(directory: Path) -> None:
    """Remove what `mount_paced_disk` leaves on the machine, also after a kill; safe to repeat."""
    run_command("umount", directory / "mnt", check=False)
    image = directory / "disk" / "image"
    listed = run_command("losetup", "--noheadings", "--output", "NAME", "-j", image, check=False)
    for device in listed.stdout.split():
        run_command("losetup", "-d", device, check=False)
    run_command("umount", directory / "disk", check=False)


@dataclass(frozen=True)
class ThrottledStore:
    """A mounted file system whose writes are limited by a control group.

    Attributes:
        directory: where it is mounted.
        device: major and minor number of its block device, `7:0`.
        group: directory of the control group; only processes in it are limited, and they share the limit.
    """

    directory: Path
    device: str
    group: Path

    @property
    def tasks_file(self) -> Path:
        """The file to which a process writes its id to join the group."""
        return self.group / "tasks"

    def limit(self, bytes_per_s: float) -> None:
        """Set the rate of writes."""
        (self.group / "blkio.throttle.write_bps_device").write_text(f"{self.device} {int(bytes_per_s)}")


@contextmanager
def throttled_store(directory: Path, group_name: str) -> Iterator[ThrottledStore]:
    """A loop device of 256 MiB with ext4, and a control group of blkio (version 1); removed afterwards.

    Raises:
        SlowStorageError: the machine refused a command.
    """
    image, mount_point = directory / "image", directory / "store"
    group = Path("/sys/fs/cgroup/blkio") / group_name
    mount_point.mkdir()
    image.write_bytes(bytes(2**28))
    with ExitStack() as undo:
        device = run_command("losetup", "--find", "--show", image).stdout.strip()
        undo.callback(run_command, "losetup", "--detach", device)
        run_command("mkfs.ext4", "-q", "-E", "lazy_itable_init=0", device)
        run_command("mount", device, mount_point)
        undo.callback(run_command, "umount", mount_point)
        group.mkdir(exist_ok=True)
        undo.callback(_remove_group, group)
        number = Path(f"/sys/block/{Path(device).name}/dev").read_text().strip()
        yield ThrottledStore(mount_point, number, group)


def _remove_group(group: Path) -> None:
    """Remove a control group as soon as its processes have ended."""
    for _ in range(50):
        with suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.1)
