"""The site: systems, the machine, schedulers, storage and stacks. Only `reframe_config` depends on ReFrame."""

from typing import TYPE_CHECKING

from iowatch.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from iowatch.site.file_system import FileSystem, FileSystemIdentity, FileSystemLimits, MeasuredFileSystem
    from iowatch.site.init import write_system
    from iowatch.site.machine import is_slurm
    from iowatch.site.schedule import NightlySchedule, current_scheduler, nightly_schedule
    from iowatch.site.schedulers import (
        NO_PARTITION_LIMITS,
        Allocation,
        PartitionLimits,
        avoiding_options,
        current_allocation,
        earlier_starts,
        exceeded_limits,
        exceeded_partition_limit,
        job_nodes,
        job_state,
        partition_limits,
        requiring_options,
    )
    from iowatch.site.stack.load import discover_stacks, load_stack, read_stack_json
    from iowatch.site.stack.records import (
        Stack,
        StackDiff,
        StackPart,
        activation_script,
        diff_stacks,
        stack_directory,
        stack_from_json,
        write_stack_files,
    )
    from iowatch.site.storage import file_system_without_striping
    from iowatch.site.system import (
        Blackout,
        CovariateSettings,
        NightlyPolicy,
        System,
        SystemLimits,
        Weekday,
        cases_of_system,
        default_file_system,
        load_system,
        shared_zone,
        suite_on_system,
        system_file,
        system_names,
        system_today,
        system_zone,
        with_file_system,
    )
else:
    __getattr__ = lazy_names(__name__)
