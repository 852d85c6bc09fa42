/* The arithmetic of workloads (docs/workloads.md): 64-bit integers that never wrap, or real numbers for
 * times. Names are resolved to slots of a scope when an expression is parsed, so that evaluating one costs
 * some nanoseconds. */
#ifndef BENCHIO_EXPRESSION_H
#define BENCHIO_EXPRESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SCOPE_SLOTS 256
#define NAME_LENGTH 64

struct scope {
    int n;
    struct slot {
        char name[NAME_LENGTH + 1]; /* empty: not visible */
        bool whole;                 /* has an integer value */
        const char *text;           /* of a text, which has no number; NULL otherwise */
        int64_t integer;
        double real;
    } slot[SCOPE_SLOTS];
};

/* Add a slot and return its number; -1: there are SCOPE_SLOTS already. */
int scope_push(struct scope *scope, const char *name);
/* The number of a visible slot; -1: none. */
int scope_find(const struct scope *scope, const char *name, size_t length);
void scope_set(struct scope *scope, int slot, int64_t value);

/* Words that are no names. */
bool expression_reserved(const char *word);

struct expression;
/* NULL and the reason in `why` (of `n` bytes) where the text is no expression. Free with expression_free().
 */
struct expression *expression_parse(const char *text, const struct scope *scope, char *why, size_t n);
/* NULL, or why there is no value. */
const char *expression_integer(const struct expression *expression, const struct scope *scope,
                               int64_t *value);
const char *expression_real(const struct expression *expression, const struct scope *scope, double *value);
void expression_free(struct expression *expression);

#endif
