"""The pulse: every ten minutes a few operations on each file system, timed on a node where users work.

    systemd timer, cron ──> run ──> probe ──> probe_program (a process that can be killed or left behind)
                             │
                             ├──> store     a file per file system and client: pulses, percentiles per hour, stalls
                             └──> iowatch.statistics.stalls ──> stalls that began or ended, which `output` reports

The history of sessions is not used: a pulse must be cheap, and must work while the database does not.
"""
