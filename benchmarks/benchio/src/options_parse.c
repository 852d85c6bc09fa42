#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "options_table.h"
#include "size.h"

#define NOT_A_HINT "expected KEY=VALUE"
#define NO_MEMORY "no memory"

bool refuse(struct refusal *refusal, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(refusal->text, refusal->n, format, arguments);
    va_end(arguments);
    return false;
}

static bool parse_choice(const struct entry *entry, const char *const *choices, const char *value,
                         int *target, struct refusal *refusal) {
    char allowed[256] = "";
    for (int i = 0; choices[i] != NULL; i++) {
        if (strcmp(choices[i], value) == 0) {
            *target = i;
            return true;
        }
        size_t used = strlen(allowed);
        snprintf(allowed + used, sizeof allowed - used, "%s%s", i > 0 ? ", " : "", choices[i]);
    }
    return refuse(refusal, "--%s %s: expected one of %s", entry->name, value, allowed);
}

static bool parse_api(const char *value, int *target, struct refusal *refusal) {
    char built[256] = "";
    for (int i = 0; i < backend_count; i++) {
        size_t used = strlen(built);
        if (backends[i].backend != NULL && strcmp(backends[i].name, value) == 0) {
            *target = i;
            return true;
        }
        if (strcmp(backends[i].name, value) == 0)
            return refuse(refusal, "--api %s: this benchio was built without it (%s)", value,
                          backends[i].absent);
        if (backends[i].backend != NULL)
            snprintf(built + used, sizeof built - used, "%s%s", used > 0 ? ", " : "", backends[i].name);
    }
    return refuse(refusal, "--api %s: expected one of %s", value, built);
}

static bool parse_seconds(const char *value, double *seconds) {
    char *end;
    errno = 0;
    *seconds = strtod(value, &end);
    return isdigit((unsigned char)*value) && *end == '\0' && errno == 0 && isfinite(*seconds) &&
           *seconds >= 0;
}

static void free_hint(struct hint hint) {
    free(hint.key);
    free(hint.value);
}

/* Add a hint, whose texts the list then owns; a key given again replaces the older value. False: there is no
 * memory, and the hint is freed. */
static bool put_hint(struct hints *hints, struct hint hint) {
    for (size_t i = 0; i < hints->n; i++) {
        if (strcmp(hints->item[i].key, hint.key) == 0) {
            free_hint(hints->item[i]);
            hints->item[i] = hint;
            return true;
        }
    }
    struct hint *longer = realloc(hints->item, (hints->n + 1) * sizeof *hints->item);
    if (longer == NULL) {
        free_hint(hint);
        return false;
    }
    hints->item = longer;
    hints->item[hints->n++] = hint;
    return true;
}

/* Add `key=value`, both trimmed. Returns NULL, or why not. */
static const char *add_hint(struct hints *hints, const char *text) {
    const char *equals = strchr(text, '=');
    if (equals == NULL)
        return NOT_A_HINT;
    char *copy = strdup(text);
    if (copy == NULL)
        return NO_MEMORY;
    char *key = copy, *key_end = copy + (equals - text);
    char *value = key_end + 1, *value_end = value + strlen(value);
    for (; isspace((unsigned char)*key); key++)
        ;
    for (; key_end > key && isspace((unsigned char)key_end[-1]); key_end--)
        ;
    for (; isspace((unsigned char)*value); value++)
        ;
    for (; value_end > value && isspace((unsigned char)value_end[-1]); value_end--)
        ;
    *key_end = *value_end = '\0';
    if (*key == '\0' || *value == '\0') {
        free(copy);
        return NOT_A_HINT;
    }
    struct hint hint = {.key = strdup(key), .value = strdup(value)};
    free(copy);
    if (hint.key == NULL || hint.value == NULL) {
        free_hint(hint);
        return NO_MEMORY;
    }
    return put_hint(hints, hint) ? NULL : NO_MEMORY;
}

static bool parse_value(struct options *options, const struct entry *entry, const char *value,
                        struct refusal *refusal) {
    const char *reason = NULL;
    switch (entry->type) {
    case T_CHOICE:
        return parse_choice(entry, entry->choices, value, TARGET(options, entry, int), refusal);
    case T_API:
        return parse_api(value, TARGET(options, entry, int), refusal);
    case T_SIZE:
        reason = size_parse(value, TARGET(options, entry, uint64_t));
        break;
    case T_COUNT:
        reason = count_parse(value, TARGET(options, entry, uint64_t));
        break;
    case T_SHIFT:
        if (strcmp(value, "auto") == 0)
            *TARGET(options, entry, uint64_t) = SHIFT_AUTO;
        else
            reason = count_parse(value, TARGET(options, entry, uint64_t));
        break;
    case T_SIZES:
        reason = sizes_parse(value, TARGET(options, entry, struct sizes)->size,
                             &TARGET(options, entry, struct sizes)->n);
        break;
    case T_SECONDS:
        reason = parse_seconds(value, TARGET(options, entry, double)) ? NULL : "expected seconds, 0 or more";
        break;
    case T_SWITCH:
    case T_FLAG:
        *TARGET(options, entry, bool) = strcmp(value, "yes") == 0;
        reason = *TARGET(options, entry, bool) || strcmp(value, "no") == 0 ? NULL : "expected yes or no";
        break;
    case T_TEXT:
        *TARGET(options, entry, const char *) = value;
        reason = *value == '\0' ? "expected some text" : NULL;
        break;
    case T_HINT:
        reason = add_hint(TARGET(options, entry, struct hints), value);
        break;
    }
    return reason == NULL || refuse(refusal, "--%s %s: %s", entry->name, value, reason);
}

static const struct entry *find(const char *name, size_t length) {
    for (size_t i = 0; i < option_count; i++)
        if (strlen(option_table[i].name) == length && strncmp(option_table[i].name, name, length) == 0)
            return &option_table[i];
    return NULL;
}

/* The option whose name shares the longest beginning with `name`, or NULL. */
static const char *near_miss(const char *name) {
    const char *best = NULL;
    size_t longest = 2;
    for (size_t i = 0; i < option_count; i++) {
        size_t common = 0;
        while (name[common] != '\0' && name[common] == option_table[i].name[common])
            common++;
        if (common >= longest) {
            longest = common + 1;
            best = option_table[i].name;
        }
    }
    return best;
}

static bool parse_arguments(struct options *options, int argc, char **argv, struct refusal *refusal) {
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i] + 2;
        if (strcmp(argv[i], "-h") == 0)
            name = "help";
        else if (strncmp(argv[i], "--", 2) != 0)
            return refuse(refusal, "'%s' is not an option; benchio --help lists them", argv[i]);
        size_t length = strcspn(name, "=");
        const struct entry *entry = find(name, length);
        if (entry == NULL) {
            const char *near = near_miss(name);
            return refuse(refusal, "unknown option '%s'%s%s; benchio --help lists them", argv[i],
                          near != NULL ? ", did you mean --" : "", near != NULL ? near : "");
        }
        const char *value = name[length] == '=' ? name + length + 1 : NULL;
        bool is_switch = entry->type == T_SWITCH || entry->type == T_FLAG;
        if (value == NULL && is_switch)
            value = "yes";
        if (value == NULL && entry->bare != NULL)
            value = entry->bare;
        if (value == NULL && ++i == argc)
            return refuse(refusal, "--%s needs a value: --%s %s", entry->name, entry->name, entry->metavar);
        if (!parse_value(options, entry, value != NULL ? value : argv[i], refusal))
            return false;
    }
    return true;
}

/* Hints of the file come first in the list, so that those of the command line replace them. */
static bool read_hints_file(struct options *options, struct refusal *refusal) {
    struct hints given = options->hints;
    FILE *file = fopen(options->hints_file, "r");
    if (file == NULL)
        return refuse(refusal, "--hints-file %s: %s", options->hints_file, strerror(errno));
    options->hints = (struct hints){0};
    char *line = NULL;
    size_t room = 0;
    bool fine = true;
    errno = 0;
    for (int number = 1; fine && getline(&line, &room, file) != -1; number++) {
        line[strcspn(line, "#\n")] = '\0';
        bool is_empty = line[strspn(line, " \t\r")] == '\0';
        const char *reason = is_empty ? NULL : add_hint(&options->hints, line);
        if (reason != NULL)
            fine = refuse(refusal, "--hints-file %s, line %d: %s", options->hints_file, number, reason);
    }
    if (fine && !feof(file))
        fine = refuse(refusal, "--hints-file %s: %s", options->hints_file, strerror(errno));
    free(line);
    fclose(file);
    for (size_t i = 0; i < given.n; i++)
        if (!put_hint(&options->hints, given.item[i]))
            fine = refuse(refusal, "--hint: %s", NO_MEMORY);
    free(given.item);
    return fine;
}

/* Values that follow from others, so that the record shows what was in force. */
static void resolve(struct options *options) {
    if (options->pattern == PATTERN_BLOCK3D) {
        if (options->global.n > 0)
            options->local.n = 0;
        return;
    }
    bool interleaved = options->pattern == PATTERN_INTERLEAVED;
    options->local.n = 0;
    if (options->transfer == 0)
        options->transfer = options->block != 0 && options->block < (1 << 20) ? options->block : 1 << 20;
    if (options->block == 0)
        options->block = interleaved || options->transfer > (16 << 20) ? options->transfer : 16 << 20;
    if (options->segments == 0)
        options->segments = interleaved ? 16 : 1;
}

bool options_parse(struct options *options, int argc, char **argv, char *message, size_t n) {
    struct refusal refusal = {message, n};
    *options = (struct options){0};
    for (size_t i = 0; i < option_count; i++)
        if (option_table[i].initial[0] != '\0' &&
            !parse_value(options, &option_table[i], option_table[i].initial, &refusal))
            return false;
    if (!parse_arguments(options, argc, argv, &refusal))
        return false;
    if (options->help || options->version)
        return true;
    if (options->hints_file != NULL && !read_hints_file(options, &refusal))
        return false;
    if (option_given(argc, argv, "segments") && options->segments == 0)
        return refuse(&refusal, "--segments must be at least 1");
    resolve(options);
    return options_check(options, argc, argv, &refusal);
}

static void free_hints(struct hints *hints) {
    for (size_t i = 0; i < hints->n; i++)
        free_hint(hints->item[i]);
    free(hints->item);
    *hints = (struct hints){0};
}

void options_free(struct options *options) {
    free_hints(&options->hints);
    free_hints(&options->sets);
}
