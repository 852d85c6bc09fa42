/* The one table of options, for those who parse, check and print them. Others need options.h only. */
#ifndef BENCHIO_OPTIONS_TABLE_H
#define BENCHIO_OPTIONS_TABLE_H

#include "options.h"

enum type { T_CHOICE, T_API, T_SIZE, T_COUNT, T_SHIFT, T_SIZES, T_SECONDS, T_SWITCH, T_FLAG, T_TEXT, T_HINT };

/* identity: part of the hash (what is measured, not where or how it is reported).
 * bare: for T_CHOICE, the value of the option without `=VALUE`; otherwise unused.
 * with_workload: has a meaning for a description of a workload, too. */
struct entry {
    const char *name;
    enum type type;
    size_t target;
    const char *metavar, *initial;
    const char *const *choices;
    const char *bare;
    bool identity;
    bool with_workload;
    const char *help;
};

/* In the order of --help and of the record. An option has no other number than its place here. */
extern const struct entry option_table[];
extern const size_t option_count;

/* Where an entry's value lives in `options`. */
#define TARGET(options, entry, ctype) ((ctype *)(void *)((char *)(uintptr_t)(options) + (entry)->target))

/* Where a message of refusal goes. */
struct refusal {
    char *text;
    size_t n;
};

/* Write the message; always false. */
bool refuse(struct refusal *refusal, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Is --name on the command line? */
bool option_given(int argc, char **argv, const char *name);

/* Refuse combinations that make no sense, whatever the number of ranks. */
bool options_check(const struct options *options, int argc, char **argv, struct refusal *refusal);

#endif
