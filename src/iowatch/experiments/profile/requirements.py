"""What `iowatch doctor` looks for: one profiler is sufficient; docs/profile.md names the others."""

from iowatch.experiments.profile.profiler import PROFILERS
from iowatch.site import doctor

PROFILER = doctor.Requirement(PROFILERS[0].name, (), (PROFILERS[0].package,), "iowatch profile", program=PROFILERS[0].name)
