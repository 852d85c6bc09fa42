"""`iowatch stack install` with a mock-up of Spack: progress, failures, and the environment of jobs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from iowatch.core import MachineError
from iowatch.site.stack import install as stack_install
from iowatch.site.stack import records as stack
from iowatch.site.stack.install import External, install_stack, pinned_spack_version, spack_version
from iowatch.site.stack.load import load_stack

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "systems" / "local" / "stacks" / "debian" / "spack.lock"


@pytest.fixture
def spack(tmp_path: Path, var: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """A mock-up of Spack 1.1 with `find` and `install`, which records its arguments."""
    monkeypatch.setattr(External, "here", lambda self: self.version)  # the machine of the lock files
    root = tmp_path / "spack"
    (root / "bin").mkdir(parents=True)
    (root / "lib" / "spack" / "spack").mkdir(parents=True)
    (root / "lib" / "spack" / "spack" / "__init__.py").write_text(f'__version__ = "{pinned_spack_version()}"\n')
    monkeypatch.setenv("SPACK_ROOT", str(root))
    prefix = tmp_path / "opt" / "benchio-1.0.0-xyz"
    key = next(part.hash for part in stack.read_lock_parts(LOCK) if part.name == "benchio")

    def make(install_text: str, code: int = 0, already: bool = True) -> Path:
        found = f"echo {key} {prefix}" if already else f"[ -d {prefix} ] && echo {key} {prefix}; true"
        (root / "bin" / "spack").write_text(
            f'#!/bin/sh\necho "$@" >> {root}/asked\ncase "$*" in\n'
            f"*' find '*) {found} ;;\n"
            f"*) mkdir -p {prefix}/bin; cat <<'END'\n{install_text}\nEND\nexit {code} ;;\nesac\n"
        )
        (root / "bin" / "spack").chmod(0o755)
        return root

    return make


# Lines of Spack 1.1.0 installing the stack `debian`.
GOOD = """[+] /usr (external parallel-netcdf-1.12.3-ee4zeulgilvepe3fweo7ajek4hfceyrp)
==> Installing benchio-1.0.0-zardrzow5asuiqsqlmvrydzsdhgu7cu4 [12/12]
==> benchio: Executing phase: 'cmake'
[+] /somewhere/linux-x86_64_v2/benchio-1.0.0-zardrzow5asuiqsqlmvrydzsdhgu7cu4"""


def test_install_progress_names_the_parts(spack: Callable[..., Path], messages: list[str]) -> None:
    spack(GOOD, already=False)
    install_stack("debian", "local")
    assert messages == [
        "debian: 1 of 12 parts: parallel-netcdf-1.12.3",
        "debian: Installing benchio-1.0.0-zardrzow5asuiqsqlmvrydzsdhgu7cu4 [12/12]",
        "debian: 2 of 12 parts: benchio-1.0.0",
    ]


def test_jobs_do_not_need_spack(spack: Callable[..., Path], var: Path) -> None:
    root = spack(GOOD)
    installed = install_stack("debian", "local")
    stack, directory = installed.stack, installed.directory
    assert stack.status == "installed"
    assert load_stack("debian").status == "installed"
    # Otherwise a session builds another one, with the first HDF5 that CMake finds.
    assert "benchio" in stack.features
    text = (directory / "activate.sh").read_text()
    assert str(root) not in text
    done = subprocess.run(["bash", "-c", f". {directory / 'activate.sh'} && echo $IOWATCH_STACK"], capture_output=True)
    assert done.stdout == b"debian\n"


def test_packages_of_the_checkout_are_rebuilt(spack: Callable[..., Path]) -> None:
    """The recipe's hash does not change with the sources of the checkout."""
    root = spack(GOOD)
    install_stack("debian", "local")
    asked = (root / "asked").read_text().splitlines()
    assert any(line.endswith("--overwrite --yes-to-all benchio") for line in asked)
    assert all("--only-concrete" in line for line in asked if " install " in line)


def test_failure_shows_the_last_lines_of_output(spack: Callable[..., Path]) -> None:
    spack("==> Error: FetchError: All fetchers failed for spack-stage-hdf5", code=1)
    with pytest.raises(MachineError, match="exit code 1:\n    ==> Error: FetchError: All fetchers failed"):
        install_stack("debian", "local")
    assert load_stack("debian").status == "locked"


def test_long_lines_of_a_failure_are_truncated(spack: Callable[..., Path]) -> None:
    """Spack prints the bytes of an archive with a wrong checksum."""
    spack("==> Error: sha256 checksum failed: " + "x" * 5000, code=1)
    with pytest.raises(MachineError) as error:
        install_stack("debian", "local")
    assert len(error.value.message) < 400


def test_stack_without_lock_names_the_concretize_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, var: Path
) -> None:
    (tmp_path / "systems" / "local" / "stacks" / "own").mkdir(parents=True)
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "systems" / "local" / "stacks" / "own" / "spack.yaml").write_text("spack: {specs: []}\n")
    monkeypatch.setenv("IOWATCH_ROOT", str(tmp_path))
    assert load_stack("own").note == "not resolved; iowatch stack install own --system local --concretize"


def test_other_spack_release_is_reported(spack: Callable[..., Path], messages: list[str]) -> None:
    root = spack(GOOD)
    (root / "lib" / "spack" / "spack" / "__init__.py").write_text('__version__ = "1.2.0"\n')
    install_stack("debian", "local")
    assert messages[0] == f"this is Spack 1.2.0; the locks were made with {pinned_spack_version()}"


def test_invalid_spack_root_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, var: Path) -> None:
    monkeypatch.setenv("SPACK_ROOT", str(tmp_path))
    with pytest.raises(MachineError, match="has no bin/spack"):
        spack_version()


@pytest.mark.parametrize("genuine", [True, False])
def test_clone_of_spack_is_verified(genuine: bool, tmp_path: Path, var: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repository with the tag of the release; the expected commit is its own, or that of the committed lock."""
    upstream = tmp_path / "upstream"
    (upstream / "bin").mkdir(parents=True)
    (upstream / "bin" / "spack").write_text("#!/bin/sh\n")
    author = ("-c", "user.name=a", "-c", "user.email=a@b")
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "x"), ("tag", f"v{pinned_spack_version()}")):
        subprocess.run(["git", "-C", str(upstream), *author, *words], check=True)
    monkeypatch.setattr(stack_install, "SPACK_URL", upstream.as_uri())
    if genuine:
        head = stack_install._git("-C", str(upstream), "rev-parse", "HEAD")
        monkeypatch.setattr(stack_install, "pinned_spack_commit", lambda: head)
        assert stack_install._clone_spack() == str(var / "spack" / "bin" / "spack")
    else:
        with pytest.raises(MachineError, match=f"expected {stack.read_lock(ROOT / 'spack.lock')['spack']['commit']}"):
            stack_install._clone_spack()
    assert [path.name for path in var.iterdir()] == (["spack"] if genuine else [])


@pytest.mark.usefixtures("var")
def test_missing_spack_error_suggests_bootstrap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SPACK_ROOT", raising=False)
    monkeypatch.setattr(External, "here", lambda self: self.version)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match="no Spack found") as caught:
        install_stack("debian", "local")
    assert "--bootstrap" in (caught.value.hint or "")


def test_build_that_prints_nothing_more_is_ended_with_what_it_started() -> None:
    """A download that never ends: the last lines say where."""
    script = "echo 'Fetching https://example.org/hdf5.tar.gz'; sleep 600 & sleep 600"
    with pytest.raises(MachineError, match=r"printed nothing for 0\.5 s and was ended:\n    Fetching https"):
        list(stack_install.stream_lines(["sh", "-c", script], silence_s=0.5))


def test_build_that_prints_now_and_then_is_not_ended() -> None:
    script = "for n in 1 2 3 4; do echo $n; sleep 0.3; done"
    assert [*stack_install.stream_lines(["sh", "-c", script], silence_s=5.0)] == ["1", "2", "3", "4"]


def test_git_that_does_not_end_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "git"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(stack_install, "_GIT_TIMEOUT_S", 0.2)
    with pytest.raises(MachineError, match=r"git clone did not end within 0\.2 s"):
        stack_install._git("clone", "https://example.org/spack")
