"""Whether an output shows the work that a suite asked for: all repetitions, and the parameters meant."""

from __future__ import annotations

from dataclasses import replace

from iowatch.model import Output
from iowatch.suites import SuiteCase


def absent(case: SuiteCase, output: Output) -> list[str]:
    """Expected results that are not there, as `write bandwidth`."""
    got = {(result.operation, result.metric) for result in output.results}
    return [f"{operation} {metric}" for operation, metric in case.expects if (operation, metric) not in got]


def judged(case: SuiteCase, output: Output, failure: str | None = None) -> Output:
    """The output; failed, with the reason, where what it has is less than or other than what was asked for.

    Args:
        failure: of something around the program that makes the result another case's; None for none.
    """
    if output.status != "ok":
        return output
    reasons = [*([failure] if failure else []), *_fewer(case, output), *_others(case, output)]
    return replace(output, status="failed", reason="; ".join(reasons)) if reasons else output


def _fewer(case: SuiteCase, output: Output) -> list[str]:
    asked = case.tool.samples(case.options)
    counts = {
        f"{operation} {metric}": sum(
            len(r.samples) for r in output.results if (r.operation, r.metric) == (operation, metric)
        )
        for operation, metric in case.expects
    }
    return [f"{name}: {n} of {asked} repetitions" for name, n in counts.items() if 0 < n < asked]


def _others(case: SuiteCase, output: Output) -> list[str]:
    """Parameters that the program prints itself and that are not those of the suite."""
    reasons = []
    for name, asked in case.tool.shows(case.options).items():
        found = next((r.case.get(name) for r in output.results if r.case.get(name) != asked), asked)
        if found != asked:
            told = f"{name} is {found} in the output" if found is not None else f"the output says no {name}"
            reasons.append(f"{told}, the suite asks for {asked}")
    return reasons
