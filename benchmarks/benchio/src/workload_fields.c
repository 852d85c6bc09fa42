/* Members of a description that all its parts share: expressions, lists of them, choices, selections of
 * ranks. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workload.h"

bool complain_at(struct complaint *c, const struct tree *place, const char *format, ...) {
    char where[512] = "", words[1024];
    va_list arguments;
    if (c->text[0] != '\0')
        return false;
    va_start(arguments, format);
    vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    if (place != NULL)
        tree_place(place, where, sizeof where);
    snprintf(c->text, c->n, "%s, %s%s%s", c->path, where, where[0] != '\0' ? ": " : "", words);
    return false;
}

bool read_allowed(struct reader *r, const struct tree *map, const char *const *keys) {
    char list[512] = "";
    if (map->kind != TREE_MAP)
        return complain_at(&r->complaint, map, "expected members (key: value)");
    for (size_t k = 0; keys[k] != NULL; k++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", k > 0 ? ", " : "", keys[k]);
    }
    for (size_t i = 0; i < map->n; i++) {
        size_t k = 0;
        while (keys[k] != NULL && strcmp(keys[k], map->item[i]->key) != 0)
            k++;
        if (keys[k] == NULL)
            return complain_at(&r->complaint, map->item[i], "unknown member; expected one of %s", list);
    }
    return true;
}

static bool expect_scalar(struct reader *r, const struct tree *place, const char *what) {
    if (place->kind == TREE_SCALAR && place->text[0] != '\0')
        return true;
    return complain_at(&r->complaint, place, "expected %s", what);
}

bool read_field(struct reader *r, const struct tree *place, struct field *f) {
    char why[256];
    f->place = place;
    if (!expect_scalar(r, place, "a number or an expression"))
        return false;
    f->expression = expression_parse(place->text, r->visible, why, sizeof why);
    return f->expression != NULL || complain_at(&r->complaint, place, "%s", why);
}

bool read_member(struct reader *r, const struct tree *map, const char *key, bool required, struct field *f) {
    const struct tree *place = tree_find(map, key);
    if (place == NULL)
        return !required || complain_at(&r->complaint, map, "'%s' is missing", key);
    return read_field(r, place, f);
}

bool read_vector(struct reader *r, const struct tree *list, struct field *f, int *n) {
    if (list->kind != TREE_LIST || list->n == 0 || list->n > WORKLOAD_DIMENSIONS)
        return complain_at(&r->complaint, list, "expected a list of 1 to %d values", WORKLOAD_DIMENSIONS);
    *n = (int)list->n;
    for (size_t i = 0; i < list->n; i++)
        if (!read_field(r, list->item[i], &f[i]))
            return false;
    return true;
}

bool read_selection(struct reader *r, const struct tree *place, struct selection *s) {
    *s = (struct selection){0};
    if (place == NULL || (place->kind == TREE_SCALAR && strcmp(place->text, "all") == 0))
        return true;
    s->is_list = place->kind == TREE_LIST;
    size_t n = s->is_list ? place->n : 1;
    if (place->kind == TREE_MAP || n == 0)
        return complain_at(&r->complaint, place, "expected all, an expression or a list of ranks");
    s->item = calloc(n, sizeof *s->item);
    if (s->item == NULL)
        return complain_at(&r->complaint, place, "no memory");
    for (; s->n < n; s->n++)
        if (!read_field(r, s->is_list ? place->item[s->n] : place, &s->item[s->n]))
            return false;
    return true;
}

bool read_choice(struct reader *r, const struct tree *place, const char *const *choices, int *choice) {
    char list[256] = "";
    if (!expect_scalar(r, place, "a word"))
        return false;
    const char *word = place->text;
    if (word[0] == '$') {
        int slot = scope_find(&r->workload->constants, word + 1, strlen(word + 1));
        if (slot < SLOT_FIRST)
            return complain_at(&r->complaint, place, "'%s': there is no such parameter", word);
        word = r->workload->text[slot];
    }
    for (int i = 0; choices[i] != NULL; i++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i > 0 ? ", " : "", choices[i]);
        if (strcmp(choices[i], word) == 0) {
            *choice = i;
            return true;
        }
    }
    return complain_at(&r->complaint, place, "'%s': expected one of %s", word, list);
}

bool field_value(struct complaint *c, const struct field *f, const struct scope *scope, int64_t otherwise,
                 int64_t *value) {
    *value = otherwise;
    if (f->expression == NULL)
        return true;
    const char *why = expression_integer(f->expression, scope, value);
    return why == NULL || complain_at(c, f->place, "%s", why);
}

bool selection_has(struct complaint *c, const struct selection *s, const struct scope *scope,
                   bool *selected) {
    int64_t value = 0, rank = scope->slot[SLOT_RANK].integer;
    *selected = s->n == 0;
    for (size_t i = 0; i < s->n && !*selected; i++) {
        if (!field_value(c, &s->item[i], scope, 0, &value))
            return false;
        if (s->is_list && (value < 0 || value >= scope->slot[SLOT_RANKS].integer))
            return complain_at(c, s->item[i].place, "there is no rank %lld", (long long)value);
        *selected = s->is_list ? value == rank : value != 0;
    }
    return true;
}
