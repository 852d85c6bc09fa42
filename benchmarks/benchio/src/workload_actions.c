/* Actions of a description: which verb, which file, which members. */
#include <stdlib.h>
#include <string.h>

#include "workload.h"

#define NAME_OF(symbol, text) text,
const char *const verb_names[] = {BENCHIO_VERBS(NAME_OF) NULL};
const char *const mode_names[] = {BENCHIO_MODES(NAME_OF) NULL};

#define KEYS 14
/* Members of each verb besides itself. */
static const char *const members[][KEYS] = {
    [DO_CREATE] = {"create", "mode", "number", "ranks"},
    [DO_OPEN] = {"open", "mode", "number", "ranks"},
    [DO_WRITE] = {"write", "offset", "size", "count", "stride", "list", "shape", "start", "view",
                  "collective", "number", "ranks"},
    [DO_READ] = {"read", "offset", "size", "count", "stride", "list", "shape", "start", "view", "short",
                 "collective", "number", "ranks"},
    [DO_FLUSH] = {"flush", "number", "ranks"},
    [DO_CLOSE] = {"close", "number", "ranks"},
    [DO_STAT] = {"stat", "number", "ranks"},
    [DO_REMOVE] = {"remove", "number", "ranks"},
    [DO_COMPUTE] = {"compute", "ranks"},
    [DO_WORK] = {"work", "ranks"},
    [DO_REPEAT] = {"repeat", "index", "actions", "ranks"},
    [DO_BARRIER] = {NULL},
};
static const char *const of_dataset[][KEYS] = {
    {"write", "dataset", "dataset_number", "start", "count", "collective", "number", "ranks"},
    {"read", "dataset", "dataset_number", "start", "count", "collective", "number", "ranks"},
};

void read_with_file(struct reader *r, bool shown) {
    static const char *const names[] = {"file_ranks", "file_rank"};
    for (int i = 0; i < 2; i++)
        strcpy(r->workload->scope.slot[SLOT_FILE_RANKS + i].name, shown ? names[i] : "");
}

static int find_verb(const struct tree *t) {
    for (int v = 0; verb_names[v] != NULL; v++)
        if (v != DO_BARRIER && tree_find(t, verb_names[v]) != NULL)
            return v;
    return -1;
}

static bool read_file_name(struct reader *r, const struct tree *name, struct action *a) {
    const struct workload *w = r->workload;
    if (name->kind == TREE_SCALAR)
        for (int i = 0; i < w->file_n; i++)
            if (strcmp(w->file[i].name, name->text) == 0) {
                a->file = i;
                return true;
            }
    return complain_at(&r->complaint, name, "expected the name of one of the files");
}

static bool read_list(struct reader *r, const struct tree *list, struct action *a) {
    if (list->kind != TREE_LIST || list->n == 0)
        return complain_at(&r->complaint, list, "expected a list of [offset, size]");
    a->list = calloc(list->n, 2 * sizeof *a->list);
    if (a->list == NULL)
        return complain_at(&r->complaint, list, "no memory");
    a->list_n = list->n;
    for (size_t i = 0; i < list->n; i++) {
        const struct tree *pair = list->item[i];
        struct field *f = &a->list[2 * i];
        if (pair->kind != TREE_LIST || pair->n != 2)
            return complain_at(&r->complaint, pair, "expected [offset, size]");
        if (!read_field(r, pair->item[0], &f[0]) || !read_field(r, pair->item[1], &f[1]))
            return false;
    }
    return true;
}

/* Where a box begins and how long it is in each dimension. */
static bool read_box(struct reader *r, const struct tree *t, struct action *a, int ndims) {
    static const char *const names[] = {"start", "count"};
    struct field **parts[] = {&a->start, &a->extent};
    for (int i = 0, n = 0; i < 2; i++) {
        const struct tree *list = tree_find(t, names[i]);
        if (list == NULL)
            return complain_at(&r->complaint, t, "'%s' is missing", names[i]);
        *parts[i] = calloc(WORKLOAD_DIMENSIONS, sizeof **parts[i]);
        if (*parts[i] == NULL)
            return complain_at(&r->complaint, t, "no memory");
        if (!read_vector(r, list, *parts[i], &n))
            return false;
        if (n != ndims)
            return complain_at(&r->complaint, list, "%d values for %d dimensions", n, ndims);
    }
    return true;
}

static bool read_dataset(struct reader *r, const struct tree *t, struct action *a) {
    const struct workload_file *f = &r->workload->file[a->file];
    const struct tree *name = tree_find(t, "dataset");
    if (name == NULL)
        return complain_at(&r->complaint, t, "'dataset' is missing");
    for (a->dataset = 0; a->dataset < f->dataset_n; a->dataset++)
        if (name->kind == TREE_SCALAR && strcmp(f->dataset[a->dataset].name, name->text) == 0)
            break;
    if (a->dataset == f->dataset_n)
        return complain_at(&r->complaint, name, "expected the name of one of the data sets of '%s'", f->name);
    return read_box(r, t, a, f->dataset[a->dataset].ndims) &&
           read_member(r, t, "dataset_number", false, &a->dataset_number);
}

/* A box of an array of bytes: a file view of MPI-IO, which all ranks set together. */
static bool read_array(struct reader *r, const struct tree *t, struct action *a) {
    const struct tree *shape = tree_find(t, "shape");
    if (!a->collective || strcmp(backends[r->workload->file[a->file].api].name, "mpiio") != 0)
        return complain_at(&r->complaint, shape, "only a collective operation of mpiio has a shape");
    if (tree_find(t, "size") != NULL || tree_find(t, "stride") != NULL || tree_find(t, "list") != NULL)
        return complain_at(&r->complaint, shape, "'shape' has the place of size, stride and list");
    a->shape = calloc(WORKLOAD_DIMENSIONS, sizeof *a->shape);
    if (a->shape == NULL)
        return complain_at(&r->complaint, t, "no memory");
    return read_member(r, t, "offset", true, &a->offset) && read_vector(r, shape, a->shape, &a->ndims) &&
           read_box(r, t, a, a->ndims);
}

static bool read_rows(struct reader *r, const struct tree *t, struct action *a) {
    const struct tree *list = tree_find(t, "list"), *start = tree_find(t, "start");
    if (tree_find(t, "shape") != NULL)
        return read_array(r, t, a);
    if (start != NULL)
        return complain_at(&r->complaint, start, "'shape' is missing");
    if (list == NULL)
        return read_member(r, t, "offset", true, &a->offset) && read_member(r, t, "size", true, &a->size) &&
               read_member(r, t, "count", false, &a->count) && read_member(r, t, "stride", false, &a->stride);
    if (tree_find(t, "offset") != NULL || tree_find(t, "size") != NULL || tree_find(t, "count") != NULL ||
        tree_find(t, "stride") != NULL)
        return complain_at(&r->complaint, list, "'list' has the place of offset, size, count and stride");
    return read_list(r, list, a);
}

/* The same for all operations of an action: expressions of parameters only. */
static bool read_truth(struct reader *r, const struct tree *t, const char *key, bool *truth) {
    struct field field = {0};
    int64_t value = 0;
    r->visible = &r->workload->constants;
    bool fine =
        read_member(r, t, key, false, &field) && field_value(&r->complaint, &field, r->visible, 0, &value);
    r->visible = &r->workload->scope;
    expression_free(field.expression);
    *truth = value != 0;
    return fine;
}

/* One operation through a file view of MPI-IO, which all ranks set together. */
static bool read_view(struct reader *r, const struct tree *t, struct action *a) {
    const struct tree *place = tree_find(t, "view");
    bool viewed;
    if (!read_truth(r, t, "view", &viewed))
        return false;
    if (!viewed)
        return true;
    if (!a->collective || strcmp(backends[r->workload->file[a->file].api].name, "mpiio") != 0)
        return complain_at(&r->complaint, place, "only a collective operation of mpiio has a view");
    if (tree_find(t, "shape") != NULL || tree_find(t, "count") != NULL || tree_find(t, "stride") != NULL)
        return complain_at(&r->complaint, place, "'view' is one operation, without shape, count and stride");
    a->part_n = a->list != NULL ? a->list_n : 1;
    a->part = calloc(a->part_n, 2 * sizeof *a->part);
    return a->part != NULL || complain_at(&r->complaint, place, "no memory");
}

static bool read_short(struct reader *r, const struct tree *t, struct action *a) {
    if (!read_truth(r, t, "short", &a->is_short))
        return false;
    return !a->is_short || strcmp(backends[r->workload->file[a->file].api].name, "mpiio") == 0 ||
           complain_at(&r->complaint, tree_find(t, "short"), "only a read of mpiio may be short");
}

static bool read_bytes(struct reader *r, const struct tree *t, struct action *a) {
    return read_rows(r, t, a) && read_view(r, t, a) && read_short(r, t, a);
}

static bool read_collective(struct reader *r, const struct tree *t, struct action *a) {
    struct workload_file *f = &r->workload->file[a->file];
    if (!read_truth(r, t, "collective", &a->collective))
        return false;
    if (a->collective && !backends[f->api].backend->has_access)
        return complain_at(&r->complaint, t, "%s has no collective operations", backends[f->api].name);
    if (strcmp(backends[f->api].name, "pnetcdf") == 0 && f->moves && f->collective != a->collective)
        return complain_at(
            &r->complaint, t,
            "transfers of a pnetcdf file are all collective or all independent: PnetCDF has a mode "
            "for each, which all ranks change together");
    f->moves = true;
    f->collective = a->collective;
    return true;
}

static bool read_transfer(struct reader *r, const struct tree *t, struct action *a) {
    bool of_sets = r->workload->file[a->file].dataset_n > 0;
    if (!read_allowed(r, t, of_sets ? of_dataset[a->verb == DO_READ] : members[a->verb]) ||
        !read_collective(r, t, a))
        return false;
    return of_sets ? read_dataset(r, t, a) : read_bytes(r, t, a);
}

static bool read_open(struct reader *r, const struct tree *t, struct action *a) {
    const struct tree *mode = tree_find(t, "mode");
    a->mode = a->verb == DO_CREATE ? MODE_WRITE : MODE_READ;
    if (mode == NULL)
        return true;
    if (!read_choice(r, mode, mode_names, &a->mode))
        return false;
    return a->verb == DO_OPEN || a->mode != MODE_READ ||
           complain_at(&r->complaint, mode, "a new file has nothing to read; expected write or read-write");
}

static bool read_index(struct reader *r, const struct tree *t, struct action *a) {
    const struct tree *name = tree_find(t, "index");
    if (name == NULL)
        return true;
    if (name->kind != TREE_SCALAR || !read_is_variable(name->text))
        return complain_at(&r->complaint, name, "expected a name (a-z, 0-9, _) that has no other meaning");
    if (scope_find(&r->workload->scope, name->text, strlen(name->text)) >= 0)
        return complain_at(&r->complaint, name, "'%s' has a meaning already", name->text);
    a->index = scope_push(&r->workload->scope, name->text);
    return a->index >= 0 || complain_at(&r->complaint, name, "more than %d names", SCOPE_SLOTS);
}

static bool read_repeat(struct reader *r, const struct tree *t, struct action *a) {
    const struct tree *list = tree_find(t, "actions");
    if (list == NULL)
        return complain_at(&r->complaint, t, "'actions' is missing");
    if (++r->depth > WORKLOAD_DEPTH)
        return complain_at(&r->complaint, t, "repeat is nested deeper than %d", WORKLOAD_DEPTH);
    int n = r->workload->scope.n;
    bool fine = read_member(r, t, "repeat", true, &a->amount) && read_index(r, t, a) &&
                read_actions(r, list, &a->action, &a->n);
    r->workload->scope.n = n;
    r->depth--;
    return fine;
}

static bool read_of_file(struct reader *r, const struct tree *t, struct action *a) {
    bool moves = a->verb == DO_WRITE || a->verb == DO_READ;
    if (!read_file_name(r, tree_find(t, verb_names[a->verb]), a))
        return false;
    if (!moves && !read_allowed(r, t, members[a->verb]))
        return false;
    return read_member(r, t, "number", false, &a->number) &&
           (moves ? read_transfer(r, t, a) : read_open(r, t, a));
}

static bool read_action(struct reader *r, const struct tree *t, struct action *a) {
    *a = (struct action){.place = t, .file = -1, .dataset = -1, .index = -1};
    if (t->kind == TREE_SCALAR && strcmp(t->text, "barrier") == 0) {
        a->verb = DO_BARRIER;
        return true;
    }
    int verb = t->kind == TREE_MAP ? find_verb(t) : -1;
    if (verb < 0)
        return complain_at(
            &r->complaint, t,
            "expected barrier, or an action with create, open, write, read, flush, close, stat, "
            "remove, compute, work or repeat");
    a->verb = (enum verb)verb;
    bool of_file = a->verb <= DO_REMOVE;
    if (!of_file && !read_allowed(r, t, members[verb]))
        return false;
    read_with_file(r, of_file);
    bool fine = read_selection(r, tree_find(t, "ranks"), &a->ranks);
    if (fine && of_file)
        fine = read_of_file(r, t, a);
    else if (fine)
        fine = a->verb == DO_REPEAT ? read_repeat(r, t, a)
                                    : read_member(r, t, verb_names[verb], true, &a->amount);
    read_with_file(r, false);
    return fine;
}

bool read_actions(struct reader *r, const struct tree *list, struct action **action, size_t *n) {
    if (list->kind != TREE_LIST || list->n == 0)
        return complain_at(&r->complaint, list, "expected a list of actions");
    *action = calloc(list->n, sizeof **action);
    if (*action == NULL)
        return complain_at(&r->complaint, list, "no memory");
    for (size_t i = 0; i < list->n; i++) {
        ++*n; /* what is read in part is freed, too */
        if (!read_action(r, list->item[i], &(*action)[i]))
            return false;
    }
    return true;
}

static void free_fields(struct field *f, size_t n) {
    for (size_t i = 0; f != NULL && i < n; i++)
        expression_free(f[i].expression);
}

void free_actions(struct action *action, size_t n) {
    for (size_t i = 0; i < n; i++) {
        struct action *a = &action[i];
        free_fields(a->ranks.item, a->ranks.n);
        free_fields(a->start, WORKLOAD_DIMENSIONS);
        free_fields(a->extent, WORKLOAD_DIMENSIONS);
        free_fields(a->shape, WORKLOAD_DIMENSIONS);
        free_fields(a->list, 2 * a->list_n);
        struct field one[] = {a->number, a->dataset_number, a->offset, a->size,
                              a->count,  a->stride,         a->amount};
        free_fields(one, sizeof one / sizeof *one);
        free(a->ranks.item), free(a->start), free(a->extent), free(a->shape), free(a->list), free(a->part);
        free_actions(a->action, a->n);
    }
    free(action);
}
