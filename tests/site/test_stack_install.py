"""`iowatch stack install` with a mock-up of Spack: progress, failures, and the environment of jobs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from iowatch.core import MachineError
from iowatch.site.stack import install as stack_install
from iowatch.site.stack import records as stack
from iowatch.site.stack.install import External, install_stack, pinned_spack_version, spack_version
from iowatch.site.stack.load import load_stack
from iowatch.site.stack.tool_query import forget_answers

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


def _replace_git(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "git").write_text(f"#!/bin/sh\n{script}\n")
    (programs / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)


def _clone_with(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _replace_git(script, tmp_path, monkeypatch)
    stack_install._clone_with_progress("https://example.org/spack", "v1.1.0", tmp_path / "spack")


# As git prints it with --progress: each state ends with a carriage return, the last one with a line end.
_PROGRESS = r"""printf 'Receiving objects:  12%% (5/40)\rReceiving objects:  13%% (6/40)\r' >&2
sleep 1
printf 'Receiving objects: 100%% (40/40)\n' >&2"""


def test_clone_of_spack_reports_how_far_it_is(
    tmp_path: Path, messages: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log gets a line every ten seconds."""
    assert stack_install._CLONE_SIGN_INTERVAL_S == 10
    monkeypatch.setattr(stack_install, "_CLONE_SIGN_INTERVAL_S", 0.2)
    _clone_with(_PROGRESS, tmp_path, monkeypatch)
    signs = [message for message in messages if "git clone: Receiving objects:  12% (5/40)" in message]
    assert len(signs) >= 2
    assert all(message.startswith("Spack: for ") for message in signs)


def test_failed_clone_has_the_last_message_of_git(tmp_path: Path, var: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = "echo 'fatal: Remote branch v1.1.0 not found' >&2; exit 128"
    _replace_git(script, tmp_path, monkeypatch)
    with pytest.raises(MachineError) as caught:
        stack_install._clone_spack()
    assert caught.value.message.startswith("cannot clone https://")
    assert caught.value.message.endswith(": fatal: Remote branch v1.1.0 not found")
    assert "SPACK_ROOT" in (caught.value.hint or "")


def test_clone_without_git_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match="git is not installed"):
        stack_install._clone_with_progress("https://example.org/spack", "v1.1.0", tmp_path / "spack")


def test_clone_that_prints_nothing_more_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_install, "_CLONE_SILENCE_S", 0.2)
    with pytest.raises(MachineError, match=r"git clone printed nothing for 0\.2 s and was ended"):
        _clone_with("exec sleep 600", tmp_path, monkeypatch)


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


def test_lines_of_a_python_program_arrive_when_they_are_printed(tmp_path: Path) -> None:
    """Spack announces a part, then builds for minutes: the program below ends when its first line was read."""
    script = """
import pathlib, sys, time
print("==> Installing ior")
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.02)
"""
    is_read = tmp_path / "is-read"
    for _ in stack_install.stream_lines([sys.executable, "-c", script, str(is_read)], silence_s=20):
        is_read.touch()


def test_git_that_does_not_end_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "git"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(stack_install, "_GIT_TIMEOUT_S", 0.2)
    with pytest.raises(MachineError, match=r"git clone did not end within 0\.2 s"):
        stack_install._git("clone", "https://example.org/spack")


def test_time_left_follows_from_the_parts_that_were_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of the machine are there at once and say nothing of the time, nor do the minutes in which Spack starts."""
    clock = iter([300.0, 305.0, 420.0])
    monkeypatch.setattr(stack_install.time, "monotonic", lambda: next(clock))
    progress = stack_install._BuildProgress.of_lock(LOCK)
    progress.to_build = 4
    assert progress.after_part("gcc", is_external=True) == "1 of 12 parts: gcc"
    assert progress.after_part("compiler-wrapper", is_external=False) == "2 of 12 parts: compiler-wrapper"
    # Two of four parts took 120 s.
    assert progress.after_part("ior", is_external=False) == "3 of 12 parts: ior; about 2 min left"


def test_unreachable_sources_are_one_line_after_less_than_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, var: Path
) -> None:
    """A server that does not answer: git is ended."""
    (tmp_path / "git").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.delenv("SPACK_ROOT", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert stack_install._REACHABLE_TIMEOUT_S < 10
    monkeypatch.setattr(stack_install, "_REACHABLE_TIMEOUT_S", 0.2)
    answer = stack_install.install_where_possible("debian", "local")
    assert isinstance(answer, stack_install.NotInstalled)
    assert (
        "https://github.com/spack/spack.git cannot be reached (git ls-remote did not end within 0.2 s)" in answer.reason
    )
    assert "\n" not in answer.reason


def test_spack_with_a_mirror_of_the_site_needs_no_network(
    spack: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spack's own list has `spack-public`; `mirror list` prints a name, its kind and its address."""
    monkeypatch.setattr(stack_install, "SPACK_URL", "file:///nowhere")
    root = spack(GOOD)
    program = (root / "bin" / "spack").read_text()
    mirrors = "spack-public    [s ] https://mirror.spack.io"
    (root / "bin" / "spack").write_text(program.replace("in\n", f"in\n*'mirror list'*) echo '{mirrors}' ;;\n", 1))
    assert isinstance(stack_install.install_where_possible("debian", "local"), stack_install.NotInstalled)
    mirrors = "site            [sb] file:///mirror"
    forget_answers()
    (root / "bin" / "spack").write_text(program.replace("in\n", f"in\n*'mirror list'*) echo '{mirrors}' ;;\n", 1))
    answer = stack_install.install_where_possible("debian", "local")
    assert isinstance(answer, stack_install.InstalledStack)


def test_missing_library_of_the_system_is_no_error_where_possible(
    spack: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A site whose HDF5 is a module."""
    spack(GOOD)
    monkeypatch.setattr(stack_install, "unreachable_sources", lambda: None)
    monkeypatch.setattr(External, "here", lambda self: "" if self.name == "hdf5" else self.version)
    answer = stack_install.install_where_possible("debian", "local")
    assert isinstance(answer, stack_install.NotInstalled)
    assert "no hdf5 1.10.8 (/usr) on this machine, and it is not buildable" in answer.reason


def test_long_step_of_a_build_is_reported_while_it_lasts(
    spack: Callable[..., Path], messages: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spack prints nothing while it reads its recipes, and nothing while it compiles."""
    monkeypatch.setattr(stack_install, "_SIGN_INTERVAL_IN_LOGS_S", 0.1)
    root = spack(GOOD, already=False)
    program = (root / "bin" / "spack").read_text()
    (root / "bin" / "spack").write_text(program.replace("cat <<", "sleep 1; cat <<"))
    install_stack("debian", "local")
    signs = [message for message in messages if message.endswith("Spack reads its recipes, minutes at its first start")]
    assert len(signs) >= 2
    assert messages[-1] == "debian: 2 of 12 parts: benchio-1.0.0"
