#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "backend.h"
#include "options_table.h"

/* `text` in lines of at most 110 columns, indented by 30. */
static void print_wrapped(const char *text) {
    const size_t indent = 30, width = 80;
    size_t column = 0;
    while (*text != '\0') {
        size_t word = strcspn(text, " ");
        if (column > 0 && column + 1 + word > width) {
            printf("\n%*s", (int)indent, "");
            column = 0;
        }
        printf("%s%.*s", column > 0 ? " " : "", (int)word, text);
        column += word + (column > 0);
        text += word + (text[word] == ' ');
    }
    putchar('\n');
}

static void help_entry(const struct entry *entry) {
    char left[64], right[1024];
    bool is_switch = entry->type == T_SWITCH || entry->type == T_FLAG;
    snprintf(left, sizeof left, "  --%s%s%s", entry->name,
             entry->bare != NULL ? "="
             : is_switch         ? ""
                                 : " ",
             is_switch ? "" : entry->metavar);
    snprintf(right, sizeof right, "%s", entry->help);
    const char *separator = ": ";
    for (int i = 0;
         entry->type == T_API ? i < backend_count : entry->choices != NULL && entry->choices[i] != NULL;
         i++) {
        size_t used = strlen(right);
        bool absent = entry->type == T_API && backends[i].backend == NULL;
        snprintf(right + used, sizeof right - used, "%s%s%s", separator,
                 entry->type == T_API ? backends[i].name : entry->choices[i], absent ? " (not built)" : "");
        separator = ", ";
    }
    size_t used = strlen(right);
    if (!is_switch && entry->initial[0] != '\0')
        snprintf(right + used, sizeof right - used, " [%s]", entry->initial);
    if (strlen(left) < 30)
        printf("%-30s", left);
    else
        printf("%s\n%30s", left, "");
    print_wrapped(right);
}

void options_help(void) {
    puts("Usage: mpirun -n RANKS benchio [OPTION]...\n"
         "Measure the bandwidth of parallel reads and writes through one of several interfaces.\n\n"
         "Options (--name VALUE or --name=VALUE; defaults in brackets):");
    for (size_t i = 0; i < option_count; i++)
        help_entry(&option_table[i]);
    puts("\nSizes: 1000000, 1m or 1MiB (2^20 bytes), 1mb (10^6 bytes), 1.5g; a fraction of a byte is "
         "refused.\n"
         "Exit codes: 0 success, 1 data differ from what was written, 2 wrong use, 3 an internal or system "
         "error.\n\n"
         "Examples:\n"
         "  mpirun -n 24 benchio --api hdf5 --sync --dir /lustre/scratch --json hdf5.json\n"
         "      24 blocks of 128^3 doubles into one HDF5 file, flushed, ten times\n"
         "  mpirun -n 10 benchio --api netcdf4 --pattern interleaved --transfer 1m --segments 20480 --op "
         "both \\\n"
         "      --cache drop --align 1m\n"
         "      round robin in units of 1 MiB, written and read back from the storage by other ranks\n"
         "  mpirun -n 64 benchio --api posix --file per-process --pattern disjoint --transfer 1000000 \\\n"
         "      --block 100000000 --verify\n"
         "  mpirun -n 8 benchio --workload flash-io.yaml --set blocks=20\n"
         "  mpirun -n 48 benchio --instances 4 --hint romio_cb_write=enable --stripe-count 8 --stripe-size "
         "4m");
}

static void sizes_text(const struct sizes *sizes, char *text, size_t n) {
    text[0] = '\0';
    for (int i = 0; i < sizes->n; i++) {
        size_t used = strlen(text);
        snprintf(text + used, n - used, "%s%" PRIu64, i > 0 ? "x" : "", sizes->size[i]);
    }
}

static void json_entry(const struct options *options, const struct entry *entry, struct json *json) {
    char text[80];
    uint64_t number = entry->type == T_SIZE || entry->type == T_COUNT || entry->type == T_SHIFT
                          ? *TARGET(options, entry, const uint64_t)
                          : 0;
    const struct hints *given = TARGET(options, entry, const struct hints);
    switch (entry->type) {
    case T_CHOICE:
        json_string(json, entry->name, entry->choices[*TARGET(options, entry, const int)]);
        break;
    case T_API:
        json_string(json, entry->name, backends[options->api].name);
        break;
    case T_SHIFT:
        if (number == SHIFT_AUTO)
            json_string(json, entry->name, "auto");
        else
            json_unsigned(json, entry->name, number);
        break;
    case T_SIZE:
    case T_COUNT:
        json_unsigned(json, entry->name, number);
        break;
    case T_SIZES:
        sizes_text(TARGET(options, entry, const struct sizes), text, sizeof text);
        json_string(json, entry->name, text[0] != '\0' ? text : NULL);
        break;
    case T_SECONDS:
        json_number(json, entry->name, *TARGET(options, entry, const double));
        break;
    case T_SWITCH:
        json_bool(json, entry->name, *TARGET(options, entry, const bool));
        break;
    case T_TEXT:
        json_string(json, entry->name, *TARGET(options, entry, const char *const));
        break;
    case T_HINT:
        json_open(json, entry->name, '{');
        for (size_t i = 0; i < given->n; i++)
            json_string(json, given->item[i].key, given->item[i].value);
        json_close(json, '}');
        break;
    case T_FLAG:
        break;
    }
}

void options_json(const struct options *options, struct json *json, bool identity) {
    for (size_t i = 0; i < option_count; i++)
        if (option_table[i].identity || !identity)
            json_entry(options, &option_table[i], json);
}
