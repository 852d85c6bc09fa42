"""The recipes of `iowatch gate --recipe`: schemas of the services, options, and their shell with a local server."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from click.testing import Result as CliResult
from jsonschema import Draft7Validator
from ruamel.yaml import YAML

from tests.conftest import ROOT

pytestmark = pytest.mark.capability("experiments.gate")

Cli = Callable[..., CliResult]
SERVICES = ("github", "gitlab")
MARKER = "<!-- iowatch gate -->"
PICTURE = "![Changes](gate.svg)\n"


def vendored_schema(name: str) -> dict[str, Any]:
    """A schema of SchemaStore as the package check-jsonschema holds it."""
    text = files("check_jsonschema").joinpath("builtin_schemas", "vendor", f"{name}.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


def recipe_text(service: str) -> str:
    return (ROOT / "ci" / "gate" / f"{service}.yml").read_text(encoding="utf-8")


def recipe(service: str) -> dict[str, Any]:
    return dict(YAML(typ="safe").load(recipe_text(service)))


def scripts(service: str) -> dict[str, str]:
    """The shell of the recipe: `gate` and `comment`."""
    document = recipe(service)
    if service == "gitlab":
        (gate,), (comment,) = document[".iowatch"]["script"], document["iowatch-comment"]["script"]
        return {"gate": gate, "comment": comment}
    steps = {step.get("name"): step for job in document["jobs"].values() for step in job["steps"]}
    return {"gate": steps["Gate"]["run"], "comment": steps["Comment"]["run"]}


@pytest.mark.parametrize("service", SERVICES)
def test_command_prints_the_recipe(service: str, cli: Cli) -> None:
    printed = cli("gate", "--recipe", service)
    assert (printed.exit_code, printed.stdout) == (0, recipe_text(service))


def test_unknown_service_is_refused(cli: Cli) -> None:
    printed = cli("gate", "--recipe", "jenkins")
    assert printed.exit_code == 2
    assert "'github', 'gitlab'" in printed.stderr


@pytest.mark.parametrize(("service", "schema"), [("github", "github-workflows"), ("gitlab", "gitlab-ci")])
def test_recipe_has_the_published_schema(service: str, schema: str) -> None:
    document, validator = recipe(service), Draft7Validator(vendored_schema(schema))
    validator.validate(document)
    # The schema reports a misspelt key.
    jobs = document["jobs"] if service == "github" else document
    first_job = "gate" if service == "github" else "iowatch-gate"
    jobs[first_job]["artefacts"] = {}
    assert not validator.is_valid(document)


@pytest.mark.parametrize("service", SERVICES)
def test_commands_and_options_exist(service: str) -> None:
    """Every `iowatch` command of the shell, and in comments; `$@` are the options that the script sets before."""
    from iowatch.cli.main import COMMANDS
    from iowatch.experiments.gate import command as gate

    script = scripts(service)["gate"].replace("\\\n", " ")
    calls = re.findall(r"^\s*iowatch (\w+)", script, re.MULTILINE)
    assert calls == ["gate"]
    assert set(re.findall(r"`iowatch (\w+)", recipe_text(service))) <= {*COMMANDS}
    call = next(line for line in script.splitlines() if line.strip().startswith("iowatch gate"))
    settings = [line for line in script.splitlines() if line.strip().startswith("set --")]
    options = set(re.findall(r"(?<!\S)(--[a-z-]+)", " ".join([call, *settings])))
    assert options <= {option for param in gate.command.params for option in param.opts}
    assert {"--base", "--head", "--record", "--branch", "--build", "--markdown"} <= options


def test_pull_request_has_no_secret_and_changes_no_cache() -> None:
    document = recipe("github")
    assert "pull_request_target" not in document["on"]
    assert document["permissions"] == {"contents": "read"}
    gate, comment = document["jobs"]["gate"], document["jobs"]["comment"]
    assert "permissions" not in gate
    assert "secrets." not in json.dumps(document)
    assert "github.token" not in json.dumps(gate)
    # What has write access checks nothing out.
    assert comment["permissions"] == {"pull-requests": "write"}
    uses = [str(step.get("uses")) for step in comment["steps"]]
    assert not any(use.startswith("actions/checkout") for use in uses)
    by_action = {str(step["uses"]).partition("@")[0]: step for step in gate["steps"] if "uses" in step}
    assert "actions/cache" not in by_action  # it saves at the end of every job
    assert by_action["actions/cache/save"]["if"] == "always() && github.event_name == 'push'"
    assert "actions/cache/restore" in by_action
    assert document["on"]["push"]["branches"] == ["main"]
    # Actions are pinned by commit. Public workflows state the same commits beside the same versions (2026-12-01).
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", str(step["uses"])) for step in gate["steps"] if "uses" in step)


def test_merge_request_uses_no_cache_and_the_gate_has_no_token() -> None:
    document = recipe("gitlab")
    assert "cache" not in document["iowatch-gate"]
    assert "cache" not in document[".iowatch"]
    assert "cache" not in document
    record = document["iowatch-record"]
    assert record["cache"]["policy"] == "pull-push"
    assert [rule["if"] for rule in record["rules"]] == [
        '$CI_PIPELINE_SOURCE == "push" && $CI_COMMIT_BRANCH == $CI_DEFAULT_BRANCH'
    ]
    # The token belongs to the environment of the job that comments, which checks nothing out.
    comment = document["iowatch-comment"]
    assert comment["environment"]["name"] == "iowatch-comment"
    assert comment["variables"]["GIT_STRATEGY"] == "none"
    assert "environment" not in {**document[".iowatch"], **document["iowatch-gate"]}
    assert "TOKEN" not in scripts("gitlab")["gate"]


# The shell of the job that decides


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with two commits, and a program `iowatch` that writes its words and ends with $CODE."""
    directory = tmp_path / "checkout"
    directory.mkdir()
    names = {f"GIT_{who}_{what}": "t" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = {**os.environ, **names, "GIT_CONFIG_GLOBAL": "/dev/null"}
    for words in (("init", "-q", "-b", "main"), *(("commit", "-q", "--allow-empty", "-m", str(n)) for n in range(3))):
        subprocess.run(["git", "-C", str(directory), *words], env=environment, check=True)
    program = tmp_path / "bin" / "iowatch"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@" > "$WORDS"\necho "**report**" > gate.md\nexit "$CODE"\n')
    program.chmod(0o755)
    return directory


def revision(directory: Path, name: str) -> str:
    command = ["git", "-C", str(directory), "rev-parse", name]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def run_script(script: str, directory: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a script as both services do: ended by the first command that fails."""
    path = f"{directory.parent / 'bin'}:/usr/bin:/bin"
    environment = {"PATH": path, "HOME": str(directory.parent), **variables}
    command = ["bash", "-e", "-o", "pipefail", "-c", script]
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)


def run_gate(service: str, checkout: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    stated = {
        "PACKAGE": "hdf5", "BUILD": "", "MARGIN": "10%", "MINUTES": "15", "UNDECIDED": "fail", "CODE": "0",
        "WORDS": str(checkout.parent / "words"), "GITHUB_STEP_SUMMARY": str(checkout.parent / "summary"),
        "BEFORE": "", "GITHUB_EVENT_NAME": "pull_request", "CI_MERGE_REQUEST_IID": "7",
        "CI_COMMIT_BEFORE_SHA": "0" * 40, "CI_PIPELINE_ID": "31",
    }  # fmt: skip
    return run_script(scripts(service)["gate"], checkout, **{**stated, **variables})


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize(
    ("code", "undecided", "expected", "message"),
    [
        ("0", "fail", 0, ""), ("1", "pass", 1, "is slower or fails"), ("4", "fail", 1, "undecided in 15 minutes"),
        ("4", "pass", 0, "passes by UNDECIDED"), ("2", "pass", 2, "exit code 2"), ("3", "pass", 3, "exit code 3"),
    ],
)  # fmt: skip
def test_exit_code_is_the_check(
    service: str, code: str, undecided: str, expected: int, message: str, checkout: Path
) -> None:
    """An undecided gate passes only if that was requested, and a gate that could not be made never does."""
    ended = run_gate(service, checkout, CODE=code, UNDECIDED=undecided)
    assert ended.returncode == expected, ended.stderr
    assert message in ended.stdout


@pytest.mark.parametrize("service", SERVICES)
def test_only_the_protected_branch_is_recorded(service: str, checkout: Path) -> None:
    first, second, head = (revision(checkout, name) for name in ("HEAD~2", "HEAD~1", "HEAD"))
    run_gate(service, checkout, BUILD="make && make install")
    words = (checkout.parent / "words").read_text().splitlines()
    assert words[:5] == ["gate", "--base", f"git:.@{second}", "--head", f"git:.@{head}"]
    assert words[-2:] == ["--build", "make && make install"]
    assert "--record" not in words
    # A push with two commits is compared with the commit before both.
    push = {
        "GITHUB_EVENT_NAME": "push",
        "GITHUB_REF_NAME": "main",
        "CI_COMMIT_BRANCH": "main",
        "CI_MERGE_REQUEST_IID": "",
    }
    run_gate(service, checkout, BEFORE=first, CI_COMMIT_BEFORE_SHA=first, **push)
    words = (checkout.parent / "words").read_text().splitlines()
    assert words[2] == f"git:.@{first}"
    assert words[-3:] == ["--record", "--branch", "main"]


def test_gitlab_compares_with_where_the_merge_request_left_its_target(checkout: Path) -> None:
    first = revision(checkout, "HEAD~2")
    run_gate("gitlab", checkout, CI_MERGE_REQUEST_DIFF_BASE_SHA=first)
    assert (checkout.parent / "words").read_text().splitlines()[2] == f"git:.@{first}"


@pytest.mark.parametrize("event_type", ["merged_result", "merge_train"])
def test_merged_results_are_compared_with_the_target(event_type: str, checkout: Path) -> None:
    """Otherwise what the target lost since the branch began would be taken for a loss of the merge request."""
    first, second = revision(checkout, "HEAD~2"), revision(checkout, "HEAD~1")
    run_gate("gitlab", checkout, CI_MERGE_REQUEST_DIFF_BASE_SHA=first, CI_MERGE_REQUEST_EVENT_TYPE=event_type)
    assert (checkout.parent / "words").read_text().splitlines()[2] == f"git:.@{second}"


# The shell of the job that comments


class CommentService:
    """A server on loopback with the part of the interface of comments that both services have.

    Attributes:
        comments: in the order in which they were made.
        writes: method and path of the requests that write.
        refused: whether writes are refused.
    """

    def __init__(self) -> None:
        self.comments: list[dict[str, Any]] = []
        self.writes: list[tuple[str, str]] = []
        self.refused = False
        self.tokens: set[str] = set()
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                service.tokens.add(self.headers.get("Authorization") or self.headers.get("PRIVATE-TOKEN") or "")
                address = urlsplit(self.path)
                if address.path.endswith("/user"):
                    self.answer(200, {"id": 11})
                    return
                number = int(parse_qs(address.query)["page"][0])
                self.answer(200, service.comments[100 * (number - 1) : 100 * number])

            def write(self) -> None:
                service.writes.append((self.command, self.path))
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if service.refused:
                    self.answer(403, {"message": "Resource not accessible"})
                elif self.command == "POST":
                    self.answer(201, service.add(body["body"], "github-actions[bot]", 11))
                else:
                    comment = service.comment(int(self.path.rpartition("/")[2]))
                    comment["body"] = body["body"]
                    self.answer(200, comment)

            do_POST = do_PATCH = do_PUT = write  # noqa: N815

            def answer(self, status: int, document: object) -> None:
                text = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"

    def add(self, body: str, login: str, author: int) -> dict[str, Any]:
        """Add a comment of an account."""
        number = 1000 + len(self.comments)
        self.comments.append({"id": number, "body": body, "user": {"login": login}, "author": {"id": author}})
        return self.comments[-1]

    def comment(self, number: int) -> dict[str, Any]:
        return next(comment for comment in self.comments if comment["id"] == number)


@pytest.fixture
def comments() -> Iterator[CommentService]:
    service = CommentService()
    thread = threading.Thread(target=service.server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield service
    service.server.shutdown()
    thread.join()
    service.server.server_close()


needs_programs = pytest.mark.skipif(
    shutil.which("curl") is None or shutil.which("jq") is None, reason="needs curl and jq: apt-get install curl jq"
)
PATHS = {"github": "/repos/o/hdf5/issues", "gitlab": "/projects/5/merge_requests/7/notes"}


def write_report(service: str, directory: Path, text: str, pipeline: int = 31) -> str:
    """Write the report as the job that decides leaves it; returns its part that is in the comment."""
    if service == "github":
        (directory / "gate.md").write_text(text)
        return text
    (directory / "gate.md").write_text(f"{text}\n<!-- pipeline {pipeline} -->\n")
    return f"{text}\n"


def run_comment(
    service: str, directory: Path, comments: CommentService, **variables: str
) -> subprocess.CompletedProcess[str]:
    stated = {
        "TOKEN": "t0ken", "NUMBER": "7", "GITHUB_API_URL": comments.address, "GITHUB_REPOSITORY": "o/hdf5",
        "IOWATCH_TOKEN": "t0ken", "CI_API_V4_URL": comments.address, "CI_PROJECT_ID": "5", "CI_MERGE_REQUEST_IID": "7",
        "CI_PIPELINE_ID": "31",
    }  # fmt: skip
    return run_script(scripts(service)["comment"], directory, **{**stated, **variables})


@needs_programs
@pytest.mark.parametrize(("service", "method"), [("github", "PATCH"), ("gitlab", "PUT")])
def test_comment_is_made_by_one_post_and_replaced_later(
    service: str, method: str, tmp_path: Path, comments: CommentService
) -> None:
    """Quotes, line breaks and other alphabets arrive as they are; the picture, a file beside the text, is left out."""
    text = f'**"new" is not slower**\n\n| $HOME `id` | ä |\n\n{PICTURE}'
    report = write_report(service, tmp_path, text)
    first = run_comment(service, tmp_path, comments)
    assert first.returncode == 0, first.stderr
    expected = f"{MARKER}\n{report.replace(PICTURE, '')}"
    assert [comment["body"] for comment in comments.comments] == [expected]
    report = write_report(service, tmp_path, "**slower**\n")
    second = run_comment(service, tmp_path, comments)
    assert second.returncode == 0, second.stderr
    assert [comment["body"] for comment in comments.comments] == [f"{MARKER}\n{report}"]
    assert [method for method, _ in comments.writes] == ["POST", method]
    assert all(path.startswith(PATHS[service]) for _, path in comments.writes)
    assert comments.tokens == {"Bearer t0ken" if service == "github" else "t0ken"}


@needs_programs
@pytest.mark.parametrize("service", SERVICES)
def test_comment_of_somebody_else_is_not_replaced(service: str, tmp_path: Path, comments: CommentService) -> None:
    """Also if it begins with the marker; a comment after the first 100 is still recognised."""
    write_report(service, tmp_path, "report\n")
    comments.add(f"{MARKER}\nnot of the workflow", "mallory", 12)
    for _ in range(100):
        comments.add("+1", "somebody", 13)
    assert run_comment(service, tmp_path, comments).returncode == 0
    assert run_comment(service, tmp_path, comments).returncode == 0
    assert len(comments.comments) == 102
    assert comments.comments[0]["body"].endswith("not of the workflow")
    assert len(comments.writes) == 2


@needs_programs
@pytest.mark.parametrize("service", SERVICES)
def test_refused_comment_fails_the_job_and_is_not_repeated(
    service: str, tmp_path: Path, comments: CommentService
) -> None:
    write_report(service, tmp_path, "report\n")
    comments.refused = True
    ended = run_comment(service, tmp_path, comments)
    assert ended.returncode != 0
    assert "403" in ended.stderr
    assert len(comments.writes) == 1


@needs_programs
@pytest.mark.parametrize("service", SERVICES)
def test_gate_without_a_report_makes_no_comment(service: str, tmp_path: Path, comments: CommentService) -> None:
    ended = run_comment(service, tmp_path, comments)
    assert (ended.returncode, comments.writes) == (0, [])
    assert "no report" in ended.stdout


@needs_programs
def test_report_of_another_pipeline_is_no_comment(tmp_path: Path, comments: CommentService) -> None:
    """A runner of GitLab keeps the directory of the job that comments, which checks nothing out."""
    write_report("gitlab", tmp_path, "report of another merge request\n", pipeline=30)
    ended = run_comment("gitlab", tmp_path, comments)
    assert (ended.returncode, comments.writes) == (0, [])
    assert "no report of this pipeline" in ended.stdout


def test_report_names_its_pipeline(checkout: Path) -> None:
    run_gate("gitlab", checkout, CODE="1")
    assert (checkout / "gate.md").read_text() == "**report**\n\n<!-- pipeline 31 -->\n"


@needs_programs
def test_merge_request_of_a_fork_has_no_token_and_no_comment(tmp_path: Path, comments: CommentService) -> None:
    write_report("gitlab", tmp_path, "report\n")
    ended = run_comment("gitlab", tmp_path, comments, IOWATCH_TOKEN="")
    assert (ended.returncode, comments.writes) == (0, [])
