"""`ci/setup` where the system's Python is too old, or differs from the one of .venv."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# A mock-up of Python: reports a version, creates environments, and installs nothing.
PYTHON = """#!/bin/sh
case "$*" in
  --version) echo "Python {version}" ;;
  *"sys.exit(sys.version_info"*) exit {too_old} ;;
  *"%d.%d"*) echo {short} ;;
  "-m venv .venv") mkdir -p .venv/bin .venv/lib/python{short}/site-packages; cp "$0" .venv/bin/python
    cp "$0" .venv/bin/iowatch ;;
esac
"""
# All programs of the packages exist.
PROGRAMS = ("cc", "make", "cmake", "pkg-config", "mpicc", "h5pcc", "pnetcdf-config", "fio", "hpcc")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The script, its lock file, and a PATH with the programs that it needs but without apt-get."""
    (tmp_path / "ci").mkdir()
    (tmp_path / "bin").mkdir()
    text = (ROOT / "ci" / "setup").read_text().replace("/usr/bin/python3", "no-python")
    (tmp_path / "ci" / "setup").write_text(text)
    for name in ("requirements.lock", "requirements-measure.lock", "requirements-dev.lock", "pyproject.toml"):
        (tmp_path / name).write_text("")
    for name in ("sh", "bash", "dirname", "sed", "grep", "cut", "sha256sum", "id", "mkdir", "cp", "rm", "touch"):
        (tmp_path / "bin" / name).symlink_to(str(shutil.which(name)))
    for name in PROGRAMS:
        _program(tmp_path, name, "#!/bin/sh\n")
    return tmp_path


def _program(checkout: Path, name: str, text: str) -> None:
    (checkout / "bin" / name).write_text(text)
    (checkout / "bin" / name).chmod(0o755)


def _python(checkout: Path, version: str) -> None:
    short = ".".join(version.split(".")[:2])
    too_old = int(tuple(map(int, short.split("."))) < (3, 11))
    _program(checkout, "python3", PYTHON.format(version=version, short=short, too_old=too_old))


def _setup(checkout: Path, *words: str) -> tuple[int, str]:
    # A file, because the end of a pipe would be that of everything that was started.
    with (checkout / "messages").open("w+") as messages:
        done = subprocess.run(
            ["bash", "ci/setup", *words],
            cwd=checkout,
            env={"PATH": str(checkout / "bin")},
            stderr=messages,
            check=False,
        )
        messages.seek(0)
        return done.returncode, messages.read()


def test_too_old_python_is_reported_with_packages_to_install(checkout: Path) -> None:
    """Ubuntu 22.04 has Python 3.10, and 3.11 in a separate package."""
    _python(checkout, "3.10.12")
    code, message = _setup(checkout)
    assert code == 3
    assert "Python 3.11 or later with venv is needed; here: Python 3.10.12" in message
    assert "Ubuntu 22.04: python3.11 python3.11-venv" in message
    assert "PYTHON=/path/to/python3 make nightly" in message


def test_python_without_venv_is_reported_as_that(checkout: Path) -> None:
    """A fresh Debian 12: Python 3.11.2 is new enough, but python3-venv is not installed."""
    _python(checkout, "3.11.2")
    text = (checkout / "bin" / "python3").read_text()
    failures = '  *"import sys, venv"* | *"import venv, ensurepip"*) exit 1 ;;\n'
    _program(checkout, "python3", text.replace('case "$*" in\n', f'case "$*" in\n{failures}'))
    code, message = _setup(checkout)
    assert code == 3
    assert "Python 3.11 or later with venv is needed; here: Python 3.11.2 without venv" in message


@pytest.mark.parametrize(
    ("candidate", "newer", "packages"),
    [
        ("3.10.6-1~22.04.1", "3.11", "python3.11 python3.11-venv"),
        ("3.12.3-0ubuntu2", "3.12", "python3 python3-venv"),
        ("3.9.2-3", "none", "python3 python3-venv"),
    ],
)
def test_suggested_packages_are_of_a_supported_python(
    checkout: Path, candidate: str, newer: str, packages: str
) -> None:
    """`apt-cache policy` of Ubuntu 22.04, Ubuntu 24.04 and Debian 11 (which has no newer one)."""
    _program(
        checkout, "apt-cache",
        f"""#!/bin/sh
case $2 in
  python3) echo "  Candidate: {candidate}" ;;
  python{newer}-venv) echo "  Candidate: {newer}.0~rc1-1" ;;
  *) echo "  Candidate: (none)" ;;
esac
""",
    )  # fmt: skip
    _, message = _setup(checkout)
    assert f"apt-get install -y -o DPkg::Lock::Timeout=600 --no-install-recommends {packages} \n" in message


def test_environment_of_a_removed_python_is_recreated(checkout: Path) -> None:
    """An upgrade of the distribution: /usr/bin/python3 is another version now."""
    _python(checkout, "3.11.2")
    assert _setup(checkout)[0] == 0
    assert _setup(checkout) == (0, "")
    _python(checkout, "3.13.5")
    shutil.copy(checkout / "bin" / "python3", checkout / ".venv" / "bin" / "python")
    code, message = _setup(checkout)
    assert (code, "recreating .venv" in message) == (0, True)
    assert (checkout / ".venv" / "lib" / "python3.13").is_dir()
    assert not (checkout / ".venv" / "lib" / "python3.11").exists()
    assert _setup(checkout) == (0, "")


def test_command_for_the_administrator_has_what_the_stack_needs(checkout: Path) -> None:
    """A user asks once: with the compilers and fio; without the stack only for what sessions need."""
    _python(checkout, "3.11.2")
    (checkout / "bin" / "mpicc").unlink()
    (checkout / "bin" / "fio").unlink()
    (checkout / "bin" / "id").unlink()
    _program(checkout, "id", "#!/bin/sh\necho 1000\n")
    _, message = _setup(checkout, "--stack")
    (command,) = [line for line in message.splitlines() if "an administrator can add it with: sudo apt-get" in line]
    packages = command.partition("--no-install-recommends ")[2].split()
    assert {"openmpi-bin", "libopenmpi-dev", "fio", "g++", "gfortran", "libtool", "patch", "xz-utils"} <= {*packages}
    _, message = _setup(checkout)
    assert "gfortran" not in message
    assert "fio" not in message


def test_unavailable_package_does_not_prevent_the_others(checkout: Path) -> None:
    """Ubuntu has no package `chromium-driver`; apt-get would then install nothing of the whole list."""
    _python(checkout, "3.12.3")
    (checkout / "bin" / "mpicc").unlink()
    (checkout / "bin" / "id").unlink()
    _program(checkout, "id", "#!/bin/sh\necho 0\n")
    _program(checkout, "apt-cache", "#!/bin/sh\n[ $2 = libopenmpi-dev ] || echo '  Candidate: 4.1.6'\n")
    _program(checkout, "apt-get", '#!/bin/sh\necho "$@" >> asked\n')
    code, message = _setup(checkout)
    assert code == 0
    assert "setup: no package here: libopenmpi-dev\n" in message
    asked = (checkout / "asked").read_text().splitlines()[-1]
    assert asked.endswith("--no-install-recommends openmpi-bin")


def test_locks_of_apt_are_waited_for(checkout: Path) -> None:
    """The first boot of a Debian holds both; the option waits for that of dpkg, not for that of the lists."""
    _python(checkout, "3.12.3")
    (checkout / "bin" / "mpicc").unlink()
    (checkout / "bin" / "id").unlink()
    _program(checkout, "id", "#!/bin/sh\necho 0\n")
    _program(checkout, "apt-cache", "#!/bin/sh\necho '  Candidate: 4.1.6'\n")
    _program(checkout, "sleep", "#!/bin/sh\nexit 0\n")
    locked = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)"
    is_free = "[ $1 = install ] || [ -e free ]"
    program = f'echo "$@" >> asked\n{is_free} || {{ : > free; echo "{locked}" >&2; exit 100; }}'
    _program(checkout, "apt-get", f"#!/bin/sh\n{program}\n")
    code, message = _setup(checkout)
    update, again, install = (checkout / "asked").read_text().splitlines()
    assert (code, update) == (0, again)
    assert "another program holds the lock" in message
    assert all("-o DPkg::Lock::Timeout=600" in line for line in (update, install))


def test_packages_are_complete_when_the_environment_fails(checkout: Path) -> None:
    """Both are installed at the same time; an interrupted apt-get would leave packages half configured."""
    _python(checkout, "3.12.3")
    text = (checkout / "bin" / "python3").read_text()
    _program(checkout, "python3", text.replace("esac\n", '  *"pip install"*) exit 7 ;;\nesac\n'))
    (checkout / "bin" / "mpicc").unlink()
    (checkout / "bin" / "id").unlink()
    _program(checkout, "id", "#!/bin/sh\necho 0\n")
    _program(checkout, "apt-cache", "#!/bin/sh\necho '  Candidate: 4.1.6'\n")
    (checkout / "bin" / "sleep").symlink_to(str(shutil.which("sleep")))
    _program(checkout, "apt-get", '#!/bin/sh\n[ $1 = update ] || { sleep 1; echo "$@" > installed; }\n')
    code, _ = _setup(checkout)
    assert code == 7
    assert (checkout / "installed").read_text().endswith("openmpi-bin libopenmpi-dev\n")


def test_failed_installation_of_packages_is_no_failure_of_setup(checkout: Path) -> None:
    """A session without MPI reports what is missing; the environment is complete."""
    _python(checkout, "3.12.3")
    (checkout / "bin" / "mpicc").unlink()
    (checkout / "bin" / "id").unlink()
    _program(checkout, "id", "#!/bin/sh\necho 0\n")
    _program(checkout, "apt-cache", "#!/bin/sh\necho '  Candidate: 4.1.6'\n")
    _program(checkout, "apt-get", "#!/bin/sh\nexit 100\n")
    code, message = _setup(checkout)
    assert (code, "the installation failed; an administrator can repeat it" in message) == (0, True)
    assert (checkout / ".venv" / "bin" / "iowatch").exists()


def _record_pip(checkout: Path, version: str = "3.12.3", step: str = "true") -> None:
    """A Python whose `-m pip` appends its words to the file `pip`, and runs a step of the shell."""
    _python(checkout, version)
    text = (checkout / "bin" / "python3").read_text()
    _program(checkout, "python3", text.replace("esac\n", f'  "-m pip "*) echo "$@" >> pip; {step} ;;\nesac\n'))


def test_size_of_the_environment_is_announced(checkout: Path) -> None:
    _record_pip(checkout)
    _, message = _setup(checkout)
    assert "requirements.lock: 714 MB of Python packages" in message
    # Without a terminal pip prints no bars; what a lock leaves out does not come as a dependency.
    first = (checkout / "pip").read_text().splitlines()[0].split()
    assert {"-q", "--require-hashes", "--no-deps"} <= set(first)


def test_long_step_says_every_ten_seconds_that_it_lasts(checkout: Path) -> None:
    text = (checkout / "ci" / "setup").read_text()
    assert "\nsign_interval=10 # seconds\n" in text
    (checkout / "ci" / "setup").write_text(text.replace("sign_interval=10 ", "sign_interval=0.3 "))
    for name in ("sleep", "du"):
        (checkout / "bin" / name).symlink_to(str(shutil.which(name)))
    _record_pip(checkout, step="sleep 1")
    code, message = _setup(checkout)
    assert code == 0
    signs = re.findall(r"^setup: Python packages: \d s, \d+ of 714 MB$", message, re.MULTILINE)
    assert len(signs) >= 4


def test_host_that_only_measures_keeps_its_smaller_environment(checkout: Path) -> None:
    """Later calls, as that of `ci/nightly`, do not add the rest; `--pages` does."""
    _record_pip(checkout)
    code, message = _setup(checkout, "--measure-only")
    assert code == 0
    assert "requirements-measure.lock: 344 MB of Python packages" in message
    assert "-r requirements-measure.lock" in (checkout / "pip").read_text()
    assert _setup(checkout) == (0, "")
    assert "requirements.lock: 714 MB" in _setup(checkout, "--pages")[1]
    assert "-r requirements.lock" in (checkout / "pip").read_text()
    assert _setup(checkout) == (0, "")


def test_unknown_option_is_refused(checkout: Path) -> None:
    code, message = _setup(checkout, "--page")
    assert (code, message) == (2, "setup: no option --page; expected --dev, --measure-only, --pages or --stack\n")


def test_smaller_lock_has_the_versions_of_the_other() -> None:
    """It lacks what only reports and pictures of Darshan traces, queries of ReFrame and decisions on pages need."""
    locked = {}
    for name in ("requirements.lock", "requirements-measure.lock"):
        locked[name] = dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / name).read_text(), re.MULTILINE))
    small, full = locked["requirements-measure.lock"], locked["requirements.lock"]
    assert small.items() <= full.items()
    assert {"darshan", "cffi", "numpy", "scipy", "reframe-hpc"} <= set(small)
    assert {"pandas", "matplotlib", "seaborn", "polars", "flask"} & set(small) == set()
