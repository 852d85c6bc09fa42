#include "workload_walk.h"

static bool value(struct walker *w, const struct field *f, int64_t otherwise, int64_t *result) {
    return field_value(&w->complaint, f, &w->scope, otherwise, result);
}

static bool count_action(struct walker *w, const struct action *a, int64_t n) {
    if (n > 0 && (uint64_t)n > WORKLOAD_ACTIONS - w->actions)
        return complain_at(&w->complaint, a->place, "more than %llu operations of one rank",
                           (unsigned long long)WORKLOAD_ACTIONS);
    w->actions += n > 0 ? (uint64_t)n : 0;
    return true;
}

static bool repeat(struct walker *w, const struct action *a) {
    int64_t n = 0;
    if (!value(w, &a->amount, 0, &n))
        return false;
    if (n < 0)
        return complain_at(&w->complaint, a->amount.place, "it is %lld; expected 0 or more", (long long)n);
    for (int64_t i = 0; i < n; i++) {
        if (a->index >= 0)
            scope_set(&w->scope, a->index, i);
        if (!count_action(w, a, 1) || !walk(w, a->action, a->n))
            return false;
    }
    return true;
}

static bool visit_list(struct walker *w, struct event *e) {
    const struct action *a = e->action;
    for (size_t i = 0; i < a->list_n; i++)
        if (!value(w, &a->list[2 * i], 0, &e->offset) || !value(w, &a->list[2 * i + 1], 0, &e->size) ||
            !count_action(w, a, 1) || !w->visit(w, e))
            return false;
    return true;
}

static bool visit_view(struct walker *w, struct event *e) {
    const struct action *a = e->action;
    const struct field of_row[] = {a->offset, a->size}, *fields = a->list != NULL ? a->list : of_row;
    for (size_t i = 0; i < 2 * a->part_n; i++)
        if (!value(w, &fields[i], 0, &a->part[i]))
            return false;
    e->part = a->part;
    e->part_n = a->part_n;
    e->offset = a->part[0];
    return count_action(w, a, 1) && w->visit(w, e);
}

/* A box of a data set, or of an array of bytes. */
static bool visit_box(struct walker *w, struct event *e) {
    const struct action *a = e->action;
    const struct dataset *set = a->dataset < 0 ? NULL : &e->file->dataset[a->dataset];
    e->ndims = set != NULL ? set->ndims : a->ndims;
    e->element = set != NULL ? element_bytes[set->type] : 1;
    for (int d = 0; d < e->ndims; d++) {
        e->dims[d] = set != NULL ? set->dims[d] : 0;
        if ((set == NULL && !value(w, &a->shape[d], 0, &e->dims[d])) ||
            !value(w, &a->start[d], 0, &e->start[d]) || !value(w, &a->extent[d], 0, &e->extent[d]))
            return false;
    }
    return value(w, &a->offset, 0, &e->offset) && value(w, &a->dataset_number, 0, &e->copy) &&
           count_action(w, a, 1) && w->visit(w, e);
}

static bool visit_transfer(struct walker *w, struct event *e) {
    const struct action *a = e->action;
    e->count = 1;
    if (a->part != NULL)
        return visit_view(w, e);
    if (a->list != NULL)
        return visit_list(w, e);
    if (a->start != NULL)
        return visit_box(w, e);
    return value(w, &a->offset, 0, &e->offset) && value(w, &a->size, 0, &e->size) &&
           value(w, &a->count, 1, &e->count) && value(w, &a->stride, e->size, &e->stride) &&
           count_action(w, a, e->count) && w->visit(w, e);
}

static bool of_file(struct walker *w, const struct action *a) {
    struct workload_file *f = &w->workload->file[a->file];
    struct event e = {.action = a, .file = f};
    bool selected = false;
    scope_set(&w->scope, SLOT_FILE_RANKS, f->comm_ranks);
    scope_set(&w->scope, SLOT_FILE_RANK, f->comm_rank);
    if (!f->member && a->ranks.n == 0)
        return true;
    if (!selection_has(&w->complaint, &a->ranks, &w->scope, &selected))
        return false;
    if (!selected)
        return true;
    if (!f->member)
        return complain_at(&w->complaint, a->place, "rank %lld has no part in '%s'",
                           (long long)w->scope.slot[SLOT_RANK].integer, f->name);
    if (!value(w, &a->number, 0, &e.number))
        return false;
    if (a->verb == DO_WRITE || a->verb == DO_READ)
        return visit_transfer(w, &e);
    return count_action(w, a, 1) && w->visit(w, &e);
}

static bool without_file(struct walker *w, const struct action *a) {
    struct event e = {.action = a};
    bool selected = false;
    if (!selection_has(&w->complaint, &a->ranks, &w->scope, &selected))
        return false;
    if (!selected)
        return true;
    if (a->verb == DO_REPEAT)
        return repeat(w, a);
    if (a->amount.expression != NULL) {
        const char *why = expression_real(a->amount.expression, &w->scope, &e.amount);
        if (why != NULL)
            return complain_at(&w->complaint, a->amount.place, "%s", why);
    }
    return count_action(w, a, 1) && w->visit(w, &e);
}

bool workload_has_halo(const struct workload *w, const struct event *e) {
    return w->halo && e->ndims > 0 && backends[e->file->api].backend->workload->takes_halo;
}

bool walk(struct walker *w, const struct action *action, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!(action[i].file >= 0 ? of_file(w, &action[i]) : without_file(w, &action[i])))
            return false;
    return true;
}
