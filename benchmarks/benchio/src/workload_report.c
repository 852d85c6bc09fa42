/* What a workload's run shows: members of the record, and tables for people. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "workload_run.h"

#define MIB 1048576.0

static const char *operation_of(const struct phase_of_workload *p) {
    return p->bytes_read > 0 && p->bytes_written > 0 ? "read-write"
           : p->bytes_read > 0                       ? "read"
           : p->bytes_written > 0                    ? "write"
                                                     : "metadata";
}

static void write_rate(struct json *json, uint64_t bytes, double io_seconds) {
    if (bytes > 0 && io_seconds > 0)
        json_number(json, "bandwidth_bytes_per_second", bandwidth(bytes, io_seconds));
    else
        json_null(json, "bandwidth_bytes_per_second");
}

static void write_parts(struct json *json, const struct phase_time *t) {
    json_open(json, "parts", '{');
    for (int part = 0; part < PART_N; part++) {
        json_open(json, part_names[part], '{');
        json_number(json, "min", t->part[part].min);
        json_number(json, "mean", t->part[part].mean);
        json_number(json, "max", t->part[part].max);
        json_integer(json, "slowest_rank", t->part[part].slowest);
        json_close(json, '}');
    }
    json_close(json, '}');
}

static void write_time(struct json *json, const struct phase_time *t, uint64_t bytes) {
    char time[40];
    utc_text(t->started, time);
    json_open(json, NULL, '{');
    json_string(json, "started", time);
    json_number(json, "seconds", t->seconds);
    json_number(json, "io_seconds", t->io_seconds);
    write_rate(json, bytes, t->io_seconds);
    if (t->resident < 0)
        json_null(json, "resident_before");
    else
        json_number(json, "resident_before", t->resident);
    write_parts(json, t);
    json_close(json, '}');
}

static bool uses_file(const struct action *action, size_t n, int file) {
    for (size_t i = 0; i < n; i++)
        if (action[i].file == file || uses_file(action[i].action, action[i].n, file))
            return true;
    return false;
}

static void write_phase(struct json *json, const struct results *r, int phase) {
    const struct phase_of_workload *p = &r->workload->phase[phase];
    json_open(json, NULL, '{');
    json_string(json, "name", p->name);
    json_string(json, "operation", operation_of(p));
    json_unsigned(json, "bytes_read", p->bytes_read);
    json_unsigned(json, "bytes_written", p->bytes_written);
    json_unsigned(json, "operations", p->operations);
    json_open(json, "files", '[');
    for (int i = 0; i < r->workload->file_n; i++)
        if (uses_file(p->action, p->n, i))
            json_string(json, NULL, r->workload->file[i].name);
    json_close(json, ']');
    json_open(json, "repetitions", '[');
    for (size_t i = 0; i < r->report->n; i++)
        write_time(json, &r->report->time[i * (size_t)r->workload->phase_n + (size_t)phase],
                   p->bytes_read + p->bytes_written);
    json_close(json, ']');
    json_close(json, '}');
}

static struct phase_time all_phases(const struct results *r, size_t repetition) {
    struct phase_time sum = {0};
    for (int i = 0; i < r->workload->phase_n; i++) {
        const struct phase_time *t = &r->report->time[repetition * (size_t)r->workload->phase_n + (size_t)i];
        sum.seconds += t->seconds;
        sum.io_seconds += t->io_seconds;
    }
    return sum;
}

static void write_total(struct json *json, const struct results *r) {
    json_open(json, "total", '[');
    for (size_t i = 0; i < r->report->n; i++) {
        struct phase_time sum = all_phases(r, i);
        json_open(json, NULL, '{');
        json_number(json, "seconds", sum.seconds);
        json_number(json, "io_seconds", sum.io_seconds);
        write_rate(json, r->bytes, sum.io_seconds);
        json_close(json, '}');
    }
    json_close(json, ']');
}

static void write_parameters(struct json *json, const struct workload *w) {
    json_open(json, "parameters", '{');
    for (int i = SLOT_FIRST; i < w->constants.n; i++) {
        const struct slot *s = &w->constants.slot[i];
        if (s->text)
            json_string(json, s->name, w->text[i]);
        else if (s->whole)
            json_integer(json, s->name, s->integer);
        else
            json_number(json, s->name, s->real);
    }
    json_close(json, '}');
}

static void write_files(struct json *json, const struct workload *w) {
    json_open(json, "files", '[');
    for (int i = 0; i < w->file_n; i++) {
        const struct workload_file *f = &w->file[i];
        json_open(json, NULL, '{');
        json_string(json, "name", f->name);
        json_string(json, "api", backends[f->api].name);
        const struct workload_file *stored = workload_stored_file(w, f);
        json_string(json, "layout", stored->group.expression != NULL ? "groups" : file_names[stored->layout]);
        json_close(json, '}');
    }
    json_close(json, ']');
}

void workload_json(const struct results *r, struct json *json) {
    const struct workload *w = r->workload;
    json_open(json, "workload", '{');
    json_string(json, "name", w->name);
    json_string(json, "sha256", w->sha256);
    write_parameters(json, w);
    write_files(json, w);
    json_unsigned(json, "needed_bytes", w->needed_bytes);
    json_close(json, '}');
    json_open(json, "phases", '[');
    for (int i = 0; i < w->phase_n; i++)
        write_phase(json, r, i);
    json_close(json, ']');
    write_total(json, r);
}

static void print_row(const char *name, const char *operation, uint64_t bytes, size_t number,
                      const struct phase_time *t) {
    printf("%-24s %-10s %12.2f %4zu ", name, operation, (double)bytes / MIB, number);
    if (bytes > 0)
        printf("%12.2f", bandwidth(bytes, t->io_seconds) / MIB);
    else
        printf("%12s", "");
    printf(" %11.6f %11.6f\n", t->io_seconds, t->seconds);
}

void workload_table(const struct context *c, const struct placement *p, const struct results *r) {
    const struct workload *w = r->workload;
    printf("benchio %s: workload %s\n%d ranks on %d node%s, %" PRIu64 " file%s, %.6g MiB per repetition\n",
           BENCHIO_VERSION, w->name, c->size, p->nodes, p->nodes > 1 ? "s" : "", w->files,
           w->files == 1 ? "" : "s", (double)r->bytes / MIB);
    printf("%s (%s); page cache: %s\n\n", c->directory, r->filesystem.type, r->cache_achieved);
    printf("%-24s %-10s %12s %4s %12s %11s %11s\n", "phase", "", "MiB", "", "MiB/s", "I/O s", "seconds");
    for (size_t n = 0; n < r->report->n; n++) {
        for (int i = 0; i < w->phase_n; i++) {
            const struct phase_of_workload *phase = &w->phase[i];
            print_row(phase->name, operation_of(phase), phase->bytes_read + phase->bytes_written, n + 1,
                      &r->report->time[n * (size_t)w->phase_n + (size_t)i]);
        }
        struct phase_time sum = all_phases(r, n);
        print_row("in all", "", r->bytes, n + 1, &sum);
    }
    if (c->options->verify)
        printf("verified: %" PRIu64 " bytes, all as written\n", r->verified_bytes);
}

void workload_print(const struct workload *w, int ranks) {
    printf("workload %s on %d ranks: %" PRIu64 " files, %" PRIu64 " bytes\n", w->name, ranks, w->files,
           w->needed_bytes);
    for (int i = 0; i < w->phase_n; i++) {
        const struct phase_of_workload *p = &w->phase[i];
        printf("%s: %s, %" PRIu64 " bytes written, %" PRIu64 " bytes read, %" PRIu64 " operations\n", p->name,
               operation_of(p), p->bytes_written, p->bytes_read, p->operations);
    }
}
