"""What `iowatch doctor` looks for: one profiler is sufficient; docs/profile.md names the others."""

from iowatch.experiments.profile.profiler import PROFILERS
from iowatch.site import doctor

_FIRST = PROFILERS[0]
PROFILER = doctor.Requirement(_FIRST.name, (), (_FIRST.package,), "iowatch profile", program=_FIRST.name)
