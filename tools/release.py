"""`make release`: the files of a release, in dist/.

    CHANGELOG.md, newest section ──> version
    committed files ──> sdist ──> wheel ──┬─> trial: new environment, empty folder, from `init` to the first verdict
                          │               └─> Containerfile
                          └─> SHA-256 ──> recipes of Spack and EasyBuild
    demonstrations ──> gallery/index.html

The wheel is built from the source distribution, so that both are complete. Nothing is uploaded.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template

ROOT = Path(__file__).resolve().parents[1]
# Recipes beside that of iowatch for what Spack's own repository lacks; the others are built from a clone.
SPACK_PACKAGES = ("iowatch", "py_junitparser", "py_psycopg", "py_reframe_hpc")


class ReleaseError(Exception):
    """Why no release can be made, and what to do."""


@dataclass(frozen=True)
class Demonstration:
    """A history of the gallery: its name for `iowatch demo`, and what the first page says of it."""

    name: str
    title: str
    story: str


GALLERY = (
    Demonstration(
        "franklin",
        "Franklin in spring 2009",
        "On 17 March 2009 a maintenance changed the MPI-IO performance of NERSC's Franklin by factors of 3 to 50. "
        "Nobody had intended it. These months are reconstructed from published figures (Antypas and Uselton, 2009).",
    ),
    Demonstration(
        "edison",
        "Edison from February 2017 to February 2018",
        "A year of nightly benchmarks on three file systems of NERSC's Edison, as measured "
        "(Lockwood and others, 2018).",
    ),
)
# In the style of the pages that it links; `$static` is a directory of them.
_GALLERY_PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Gallery of iowatch</title>
<link rel="icon" href="$static/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="$static/style.css">
</head>
<body>
<header><span class="brand">iowatch</span></header>
<main>
<h1>Gallery</h1>
<p>iowatch measures parallel I/O every night and reports in the morning what changed, since when, and by how much.
These are its pages of histories that were published.</p>
$entries
</main>
</body>
</html>
""")
_GALLERY_ENTRY = Template("""<section>
<h2><a href="$name/index.html">$title</a></h2>
<p>$story</p>
<p>
<a href="$name/index.html">Status</a> ·
<a href="$name/findings.html">Findings</a> ·
<a href="$name/overview.html">Overview</a>
</p>
</section>""")


@dataclass(frozen=True)
class Distributions:
    """The two files that pip installs."""

    version: str
    sdist: Path
    wheel: Path


def report(text: str) -> None:
    """Print a step on stderr."""
    print(f"release: {text}", file=sys.stderr, flush=True)


def run(*words: str | Path, cwd: Path = ROOT, environment: Mapping[str, str] | None = None) -> str:
    """Run a program and return its stdout; its stderr is that of this program.

    Raises:
        ReleaseError: the program failed.
    """
    command = [*map(str, words)]
    done = subprocess.run(command, cwd=cwd, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"exit code {done.returncode} of {' '.join(command)}\n{done.stdout}")
    return done.stdout


def release_version(changelog: str) -> str:
    """Return the version of the newest section of the changelog.

    Raises:
        ReleaseError: it has none.
    """
    section = re.search(r"^## (\d+\.\d+\.\d+)", changelog, re.MULTILINE)
    if section is None:
        raise ReleaseError("CHANGELOG.md: no section such as `## 0.1.0`")
    return section[1]


def check_source(root: Path, version: str) -> None:
    """Check that the files of the release are those of a commit, and that its tag is of this version.

    Raises:
        ReleaseError: changed files, or another version in the tag.
    """
    changed = run("git", "status", "--porcelain", "--untracked-files=no", cwd=root).strip()
    if changed:
        raise ReleaseError(f"files differ from the commit: commit them, or release from a clean clone\n{changed}")
    tags = run("git", "tag", "--points-at", "HEAD", "--list", "v*", cwd=root).split()
    if not tags:
        report(f"this commit has no tag v{version}: set it before you publish (iowatch docs releases)")
    elif f"v{version}" not in tags:
        raise ReleaseError(f"the commit has the tag {tags[0]}, but the newest section of CHANGELOG.md is {version}")


def build_distributions(root: Path, target: Path, version: str) -> Distributions:
    """Build the source distribution of a commit, and from it the wheel.

    Args:
        root: a clone.
        target: directory of both.
        version: of the release; a tag that is not set yet cannot name it.
    """
    hatchling = (sys.executable, "-m", "hatchling", "build", "-d", target)
    run(*hatchling, "-t", "sdist", cwd=root, environment={**os.environ, "SETUPTOOLS_SCM_PRETEND_VERSION": version})
    sdist = target / f"iowatch-{version}.tar.gz"
    with tempfile.TemporaryDirectory() as scratch:
        run("tar", "-xzf", sdist, "-C", scratch)
        run(*hatchling, "-t", "wheel", cwd=Path(scratch, f"iowatch-{version}"))
    wheel = target / f"iowatch-{version}-py3-none-any.whl"
    if not wheel.is_file():
        raise ReleaseError(f"the source distribution made no {wheel.name}")
    return Distributions(version, sdist, wheel)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_container_file(root: Path, distributions: Distributions, target: Path) -> None:
    """Write a container file that installs the wheel; its second stage is that of ci/Containerfile."""
    stages = (root / "ci" / "Containerfile").read_text(encoding="utf-8").split("\nFROM $BASE")
    wheel = distributions.wheel.name
    lines = [
        f"# iowatch {distributions.version} for looking at dashboards, and for a trial. In the directory of this file:",
        "#",
        f"#   podman build -t iowatch:{distributions.version} .",
        "#   podman run --rm --userns keep-id --user $(id -u) -v ./site:/site --network none iowatch init /site",
        "#",
        "# The first stage installs from the network, with the hashes of the lock file. Nothing needs it afterwards.",
        "ARG BASE=docker.io/library/debian:12-slim",
        "",
        "FROM $BASE AS build",
        "RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates python3 python3-venv",
        f"COPY {wheel} requirements.lock /dist/",
        "RUN python3 -m venv /opt/iowatch && \\",
        "    /opt/iowatch/bin/pip install -q --no-cache-dir --require-hashes -r /dist/requirements.lock && \\",
        f"    /opt/iowatch/bin/pip install -q --no-deps --no-index /dist/{wheel}",
        "",
    ]
    text = "\n".join(lines) + "\nFROM $BASE" + stages[-1]
    (target / "Containerfile").write_text(text, encoding="utf-8")
    for name in ("requirements.lock", "requirements-measure.lock"):
        shutil.copyfile(root / name, target / name)


def write_spack_repository(root: Path, distributions: Distributions, target: Path) -> None:
    """Write a package repository of Spack, whose recipe of iowatch has the source distribution beside it.

    Raises:
        ReleaseError: the recipe of the clone has no version that the one of the release could replace.
    """
    source, repository = root / "benchmarks" / "spack_repo" / "iowatch", target / "spack_repo" / "iowatch"
    for name in SPACK_PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source / "packages" / name, repository / "packages" / name, ignore=ignored)
    shutil.copyfile(source / "repo.yaml", repository / "repo.yaml")
    recipe = repository / "packages" / "iowatch" / "package.py"
    text = recipe.read_text(encoding="utf-8")
    origin = re.search(r"    # The clone that holds this recipe.*?\n    git = .*?\n", text, re.DOTALL)
    branch = re.search(r'    version\("main", branch="main"\)\n', text)
    if origin is None or branch is None:
        raise ReleaseError("the recipe of Spack has no `git = …` or no version `main`")
    archive = f'    url = f"file://{{Path(__file__).resolve().parents[4]}}/{distributions.sdist.name}"\n'
    text = text.replace(origin[0], f"    # The source distribution lies beside spack_repo/.\n{archive}")
    version = f'    version("{distributions.version}", sha256="{sha256_of(distributions.sdist)}")\n'
    text = text.replace(branch[0], version)
    # A clone is asked for its version by git, an archive knows it.
    text = text.replace('    depends_on("git", type="build")\n', "")
    recipe.write_text(text, encoding="utf-8")


def write_easyconfig(root: Path, distributions: Distributions, target: Path) -> None:
    """Write the recipe of EasyBuild, with the checksum of the source distribution."""
    template = Template((root / "tools" / "easyconfig.template").read_text(encoding="utf-8"))
    commit = run("git", "rev-parse", "--short=9", "HEAD", cwd=root).strip()
    facts = {"version": distributions.version, "sha256": sha256_of(distributions.sdist), "commit": commit}
    path = target / f"iowatch-{distributions.version}.eb"
    path.write_text(template.substitute(facts), encoding="utf-8")


def write_checksums(target: Path) -> None:
    """Write SHA256SUMS of the files beside it, as `sha256sum -c` reads them."""
    files = [path for path in sorted(target.iterdir()) if path.is_file()]
    lines = [f"{sha256_of(path)}  {path.name}\n" for path in files]
    (target / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


def write_gallery(target: Path, demonstrations: tuple[Demonstration, ...] = GALLERY) -> None:
    """Replay demonstrations and write their pages as static files, with a first page that links them.

    Args:
        target: directory; each demonstration gets one of its own in it.
    """
    target.mkdir(parents=True)
    entries: list[str] = []
    for demonstration in demonstrations:
        report(f"gallery: {demonstration.name}, half a minute or more")
        with tempfile.TemporaryDirectory() as scratch:
            # The database is that of the settings, so that its path is in no command that the pages show.
            database = Path(scratch, "iowatch.db")
            settings = {"IOWATCH_VAR": scratch, "IOWATCH_DB": str(database), "IOWATCH_ROOT": str(ROOT)}
            environment = {**os.environ, **settings}
            iowatch = (sys.executable, "-m", "iowatch")
            run(*iowatch, "demo", demonstration.name, "--db", database, cwd=Path(scratch), environment=environment)
            pages = Path(scratch, "pages")
            build = ("dashboard", "build", "--output", pages)
            run(*iowatch, *build, cwd=Path(scratch), environment=environment)
            # The site that was built is a link to one of its versions; the gallery has the files.
            shutil.copytree(pages, target / demonstration.name)
        _make_public(target / demonstration.name)
        title, story = escape(demonstration.title), escape(demonstration.story)
        entries.append(_GALLERY_ENTRY.substitute(name=demonstration.name, title=title, story=story))
    static = f"{demonstrations[0].name}/static"
    page = _GALLERY_PAGE.substitute(static=static, entries="\n".join(entries))
    (target / "index.html").write_text(page, encoding="utf-8")


def _make_public(directory: Path) -> None:
    """Let everybody read the pages: those of a site are for its group only."""
    for path in (directory, *directory.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


@dataclass(frozen=True)
class TrialStep:
    """A command of the trial and the seconds that it took."""

    command: str
    seconds: float


def try_wheel(wheel: Path, scratch: Path) -> list[TrialStep]:
    """Install a wheel into a new environment and use it in an empty folder, from `init` to the first verdict.

    Args:
        wheel: of the release.
        scratch: an empty directory, which becomes the home, too.

    Raises:
        ReleaseError: a command failed. A session with a finding (exit code 1) is a verdict.
    """
    environment, home, site = scratch / "environment", scratch / "home", scratch / "site"
    home.mkdir()
    variables = {"HOME": str(home), "PATH": f"{environment / 'bin'}:{os.environ['PATH']}"}
    for name, value in os.environ.items():
        if not name.startswith(("IOWATCH_", "PYTHON", "XDG_", "VIRTUAL_ENV")):
            variables.setdefault(name, value)
    # The settings of pip, as a mirror of the index, are those of the person who makes the release.
    variables_of_pip = {**variables, "HOME": os.environ.get("HOME", str(home))}
    install = (environment / "bin" / "python", "-m", "pip", "install", f"{wheel}[pages]")
    steps = [
        _try_command(("python3", "-m", "venv", environment), scratch, variables),
        _try_command(install, scratch, variables_of_pip),
        _try_command(("iowatch", "init", site), scratch, variables),
    ]
    for command in TRIAL_IN_SITE:
        steps.append(_try_command(("iowatch", *command.split()), site, variables))
    return steps


# What a newcomer types in the repository of a site, to the first verdict and its pages.
TRIAL_IN_SITE = ("system init mine", "run --system mine --suite tiny", "dashboard build", "docs settings")


def _try_command(words: Sequence[str | Path], directory: Path, variables: Mapping[str, str]) -> TrialStep:
    command = " ".join(map(str, words))
    report(f"trial: {command}")
    started_s = time.monotonic()
    # Its progress is shown; stdout of this program stays empty.
    program = shutil.which(str(words[0]), path=variables["PATH"]) or str(words[0])
    arguments = [program, *map(str, words[1:])]
    done = subprocess.run(arguments, cwd=directory, env=dict(variables), check=False, stdout=sys.stderr)
    is_verdict = done.returncode == 1 and "run" in words
    if done.returncode and not is_verdict:
        raise ReleaseError(f"trial of the wheel: exit code {done.returncode} of {command}")
    return TrialStep(command, time.monotonic() - started_s)


def make_release(root: Path, target: Path, *, with_trial: bool, with_gallery: bool) -> Distributions:
    """Make all files of a release.

    Args:
        root: a clone without changed files.
        target: directory; what it has of an earlier release is removed.
        with_trial: install and use the wheel, with packages from the network.
        with_gallery: replay the demonstrations.

    Raises:
        ReleaseError: something is missing or failed.
    """
    version = release_version((root / "CHANGELOG.md").read_text(encoding="utf-8"))
    check_source(root, version)
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    report(f"iowatch {version}: source distribution and wheel")
    distributions = build_distributions(root, target, version)
    report("container file, recipes of Spack and EasyBuild")
    write_container_file(root, distributions, target)
    write_spack_repository(root, distributions, target)
    write_easyconfig(root, distributions, target)
    write_checksums(target)
    if with_trial:
        with tempfile.TemporaryDirectory() as scratch:
            for step in try_wheel(distributions.wheel, Path(scratch)):
                report(f"{step.seconds:6.0f} s  {step.command}")
    if with_gallery:
        write_gallery(target / "gallery")
    return distributions


def main() -> int:
    """Make a release from the clone of this file."""
    parser = argparse.ArgumentParser(description="Make the files of a release in dist/.")
    parser.add_argument("--target", type=Path, default=ROOT / "dist", help="directory of the release [default: dist]")
    parser.add_argument("--without-trial", action="store_true", help="do not install and use the wheel")
    parser.add_argument("--without-gallery", action="store_true", help="do not replay the demonstrations")
    options = parser.parse_args()
    target = options.target.absolute()
    try:
        make_release(ROOT, target, with_trial=not options.without_trial, with_gallery=not options.without_gallery)
    except ReleaseError as error:
        report(str(error))
        return 2
    report(f"files of the release are in {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
