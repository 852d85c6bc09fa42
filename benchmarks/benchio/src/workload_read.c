/* From the text of a description to its parts. All ranks read the same text and come to the same result. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "sha256.h"
#include "workload.h"

#define NAME_OF(symbol, text) text,
const char *const element_names[] = {BENCHIO_ELEMENTS(NAME_OF) NULL};
const unsigned element_bytes[] = {
    [ELEMENT_BYTE] = 1, [ELEMENT_INT] = 4, [ELEMENT_LONG] = 8, [ELEMENT_FLOAT] = 4, [ELEMENT_DOUBLE] = 8};

/* Lower-case letters, digits and the characters of `more`; begins with a letter. Not what YAML has for truth.
 */
static bool is_word(const char *word, const char *more) {
    static const char *const taken[] = {"true", "false", "yes", "no", "on", "off", "null"};
    size_t n = strlen(word);
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (strcmp(word, taken[i]) == 0)
            return false;
    if (n > NAME_LENGTH || !islower((unsigned char)word[0]))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!islower((unsigned char)word[i]) && !isdigit((unsigned char)word[i]) &&
            strchr(more, word[i]) == NULL)
            return false;
    return true;
}

bool read_is_variable(const char *word) {
    return is_word(word, "_") && !expression_reserved(word);
}

static bool read_name(struct reader *r, const struct tree *t, const char **name) {
    const struct tree *place = tree_find(t, "name");
    if (place == NULL)
        return complain_at(&r->complaint, t, "'name' is missing");
    if (place->kind != TREE_SCALAR || !is_word(place->text, "-"))
        return complain_at(&r->complaint, place, "expected a name of a-z, 0-9 and -");
    *name = place->text;
    return true;
}

/* The texts for people are read by people only. */
static bool check_texts(struct reader *r, const struct tree *t) {
    static const char *const texts[] = {"description", "source"};
    for (int i = 0; i < 2; i++) {
        const struct tree *place = tree_find(t, texts[i]);
        if (place != NULL && place->kind != TREE_SCALAR)
            return complain_at(&r->complaint, place, "expected a text");
    }
    return true;
}

/* A description of a trace may hold for one number of ranks only. */
static bool check_ranks(struct reader *r, const struct tree *t, int ranks) {
    struct field field = {0};
    int64_t wanted = ranks;
    if (t != NULL && !read_field(r, t, &field))
        return false;
    const char *why =
        t == NULL ? NULL : expression_integer(field.expression, &r->workload->constants, &wanted);
    expression_free(field.expression);
    if (why != NULL)
        return complain_at(&r->complaint, t, "%s", why);
    return wanted == ranks ||
           complain_at(&r->complaint, t, "the workload is described for %lld ranks only: it cannot run on %d",
                       (long long)wanted, ranks);
}

static const struct hint *find_set(const struct hints *sets, const char *name) {
    for (size_t i = 0; i < sets->n; i++)
        if (strcmp(sets->item[i].key, name) == 0)
            return &sets->item[i];
    return NULL;
}

/* A parameter is a number if its text is an expression, and a text otherwise. */
static bool read_parameter(struct reader *r, const struct tree *t, const struct hints *sets) {
    struct workload *w = r->workload;
    char why[256];
    if (!read_is_variable(t->key) || scope_find(&w->constants, t->key, strlen(t->key)) >= 0)
        return complain_at(&r->complaint, t, "expected a name (a-z, 0-9, _) that has no other meaning");
    if (t->kind != TREE_SCALAR)
        return complain_at(&r->complaint, t, "expected a number, an expression or a text");
    const struct hint *set = find_set(sets, t->key);
    const char *text = set != NULL ? set->value : t->text;
    struct expression *e = expression_parse(text, &w->constants, why, sizeof why);
    int slot = scope_push(&w->constants, t->key);
    if (slot < 0) {
        expression_free(e);
        return complain_at(&r->complaint, t, "more than %d names", SCOPE_SLOTS);
    }
    w->text[slot] = strdup(text);
    if (w->text[slot] == NULL) {
        expression_free(e);
        return complain_at(&r->complaint, t, "no memory");
    }
    struct slot *s = &w->constants.slot[slot];
    s->text = e == NULL ? w->text[slot] : NULL;
    s->whole = e != NULL && expression_integer(e, &w->constants, &s->integer) == NULL;
    const char *wrong = e != NULL ? expression_real(e, &w->constants, &s->real) : NULL;
    expression_free(e);
    return wrong == NULL || complain_at(&r->complaint, t, "%s", wrong);
}

static bool read_parameters(struct reader *r, const struct tree *map, const struct hints *sets) {
    char list[512] = "none";
    if (map != NULL && map->kind != TREE_MAP)
        return complain_at(&r->complaint, map, "expected members (name: value)");
    for (size_t i = 0; map != NULL && i < map->n; i++) {
        size_t used = i > 0 ? strlen(list) : 0;
        snprintf(list + used, sizeof list - used, "%s%s", i > 0 ? ", " : "", map->item[i]->key);
        if (!read_parameter(r, map->item[i], sets))
            return false;
    }
    for (size_t i = 0; i < sets->n; i++)
        if (tree_find(map, sets->item[i].key) == NULL)
            return complain_at(&r->complaint, map != NULL ? map : r->workload->tree,
                               "--set %s: there is no such parameter; there are: %s", sets->item[i].key,
                               list);
    return true;
}

static bool read_variable(struct reader *r, const struct tree *t) {
    struct scope *scope = &r->workload->scope;
    struct field field = {0};
    if (!read_is_variable(t->key) || scope_find(scope, t->key, strlen(t->key)) >= 0)
        return complain_at(&r->complaint, t, "expected a name (a-z, 0-9, _) that has no other meaning");
    if (!read_field(r, t, &field))
        return false;
    int slot = scope_push(scope, t->key);
    const char *why = NULL;
    if (slot >= 0) {
        struct slot *s = &scope->slot[slot];
        const char *no_integer = expression_integer(field.expression, scope, &s->integer);
        why = expression_real(field.expression, scope, &s->real);
        s->whole = no_integer == NULL;
        /* What is no whole number may be meant for `compute`; what overflows is meant for nothing. */
        if (why == NULL && no_integer != NULL && strstr(no_integer, "not a whole") == NULL)
            why = no_integer;
    }
    expression_free(field.expression);
    if (slot < 0)
        return complain_at(&r->complaint, t, "more than %d names", SCOPE_SLOTS);
    return why == NULL || complain_at(&r->complaint, t, "%s", why);
}

static bool read_variables(struct reader *r, const struct tree *map) {
    if (map != NULL && map->kind != TREE_MAP)
        return complain_at(&r->complaint, map, "expected members (name: expression)");
    for (size_t i = 0; map != NULL && i < map->n; i++)
        if (!read_variable(r, map->item[i]))
            return false;
    return true;
}

static bool read_dataset(struct reader *r, const struct tree *t, struct dataset *d) {
    static const char *const keys[] = {"type", "shape", "chunk", "fill", "count", NULL};
    *d = (struct dataset){.place = t, .name = t->key};
    if (!is_word(t->key, "-_"))
        return complain_at(&r->complaint, t, "expected a name of a-z, 0-9, - and _");
    if (!read_allowed(r, t, keys))
        return false;
    const struct tree *type = tree_find(t, "type"), *shape = tree_find(t, "shape"),
                      *chunk = tree_find(t, "chunk");
    if (type == NULL || shape == NULL)
        return complain_at(&r->complaint, t, "'%s' is missing", type == NULL ? "type" : "shape");
    if (!read_choice(r, type, element_names, &d->type) || !read_vector(r, shape, d->shape, &d->ndims) ||
        (chunk != NULL && !read_vector(r, chunk, d->chunk, &d->chunk_ndims)))
        return false;
    if (chunk != NULL && d->chunk_ndims != d->ndims)
        return complain_at(&r->complaint, chunk, "%d values for %d dimensions", d->chunk_ndims, d->ndims);
    return read_member(r, t, "count", false, &d->count) && read_member(r, t, "fill", false, &d->fill);
}

static bool read_datasets(struct reader *r, const struct tree *map, struct workload_file *f) {
    if (map->kind != TREE_MAP || map->n == 0)
        return complain_at(&r->complaint, map, "expected data sets (name: members)");
    f->dataset = calloc(map->n, sizeof *f->dataset);
    if (f->dataset == NULL)
        return complain_at(&r->complaint, map, "no memory");
    f->dataset_n = (int)map->n;
    for (size_t i = 0; i < map->n; i++)
        if (!read_dataset(r, map->item[i], &f->dataset[i]))
            return false;
    return true;
}

static bool read_api(struct reader *r, const struct tree *t, struct workload_file *f) {
    const struct tree *place = tree_find(t, "api");
    if (place == NULL)
        return complain_at(&r->complaint, t, "'api' is missing");
    /* All but null, and NULL at the end. */
    const char **names = calloc((size_t)backend_count, sizeof *names);
    if (names == NULL)
        return complain_at(&r->complaint, place, "no memory");
    for (int i = 0, n = 0; i < backend_count; i++)
        if (strcmp(backends[i].name, "null") != 0)
            names[n++] = backends[i].name;
    int choice = 0;
    bool is_name = read_choice(r, place, names, &choice);
    for (f->api = 0; is_name && strcmp(backends[f->api].name, names[choice]) != 0;)
        f->api++;
    free(names);
    if (!is_name)
        return false;
    return backends[f->api].backend != NULL ||
           complain_at(&r->complaint, place, "this benchio was built without %s (%s)", backends[f->api].name,
                       backends[f->api].absent);
}

/* Members that some interfaces have only. */
static bool check_members(struct reader *r, const struct tree *t, const struct workload_file *f) {
    const struct backend *b = backends[f->api].backend;
    bool hdf5 = strcmp(b->name, "hdf5") == 0;
    const struct {
        const char *key;
        bool allowed, required;
    } rules[] = {{"bytes", !b->has_layout, true},
                 {"datasets", b->has_layout, true},
                 {"attributes", b->has_layout, false},
                 {"hints", b->has_hints, false},
                 {"align", hdf5, false},
                 {"folder", hdf5, false},
                 {"collective_metadata", hdf5, false}};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const struct tree *place = tree_find(t, rules[i].key);
        if (place != NULL && !rules[i].allowed)
            return complain_at(&r->complaint, place, "a file of %s has no such member", b->name);
        if (place == NULL && rules[i].allowed && rules[i].required)
            return complain_at(&r->complaint, t, "'%s' is missing", rules[i].key);
    }
    for (int i = 0; i < f->dataset_n; i++)
        if (f->dataset[i].chunk_ndims > 0 && !b->has_chunks)
            return complain_at(&r->complaint, f->dataset[i].place, "%s has no chunks", b->name);
    return true;
}

static bool check_hints(struct reader *r, const struct workload_file *f) {
    if (f->hints == NULL)
        return true;
    if (f->hints->kind != TREE_MAP)
        return complain_at(&r->complaint, f->hints, "expected members (hint: value)");
    for (size_t i = 0; i < f->hints->n; i++) {
        const struct tree *h = f->hints->item[i];
        if (h->kind != TREE_SCALAR || h->text[0] == '\0' || strlen(h->text) >= MPI_MAX_INFO_VAL)
            return complain_at(&r->complaint, h, "expected a word or number");
        if (strlen(h->key) >= MPI_MAX_INFO_KEY || strlen(h->key) > 200)
            return complain_at(&r->complaint, h, "the name of the hint is too long");
        if (h->text[0] == '$' &&
            scope_find(&r->workload->constants, h->text + 1, strlen(h->text + 1)) < SLOT_FIRST)
            return complain_at(&r->complaint, h, "'%s': there is no such parameter", h->text);
    }
    return true;
}

static bool read_file_values(struct reader *r, const struct tree *t, struct workload_file *f) {
    const struct tree *sets = tree_find(t, "datasets");
    if (sets != NULL && !read_datasets(r, sets, f))
        return false;
    return read_member(r, t, "count", false, &f->count) && read_member(r, t, "bytes", false, &f->bytes) &&
           read_member(r, t, "input", false, &f->input) &&
           read_member(r, t, "attributes", false, &f->attributes) &&
           read_member(r, t, "align", false, &f->align) &&
           read_member(r, t, "collective_metadata", false, &f->collective_metadata);
}

/* The file that this one is through another interface: a file of bytes, described before it, which says where
 * it is and how many there are. */
static bool read_same_as(struct reader *r, const struct tree *t, struct workload_file *f) {
    static const char *const of_the_other[] = {"layout", "group", "count", "input"};
    const struct tree *place = tree_find(t, "same_as");
    if (place == NULL)
        return true;
    for (size_t i = 0; i < sizeof of_the_other / sizeof *of_the_other; i++)
        if (tree_find(t, of_the_other[i]) != NULL)
            return complain_at(&r->complaint, tree_find(t, of_the_other[i]), "it is that of 'same_as'");
    for (int i = 0; place->kind == TREE_SCALAR && &r->workload->file[i] < f; i++)
        if (strcmp(r->workload->file[i].name, place->text) == 0)
            f->same_as = i;
    if (f->same_as < 0)
        return complain_at(&r->complaint, place, "expected the name of a file that is described before");
    const struct workload_file *other = &r->workload->file[f->same_as];
    if (other->same_as >= 0 || backends[other->api].backend->has_layout ||
        backends[f->api].backend->has_layout)
        return complain_at(&r->complaint, place,
                           "it is for a file of posix that is one of mpiio, or reverse");
    return true;
}

static bool read_file(struct reader *r, const struct tree *t, struct workload_file *f) {
    static const char *const keys[] = {"api",      "layout",     "group", "ranks",
                                       "count",    "bytes",      "input", "hints",
                                       "datasets", "attributes", "align", "collective_metadata",
                                       "folder",   "same_as",    NULL};
    *f = (struct workload_file){
        .place = t, .name = t->key, .comm = MPI_COMM_NULL, .hints = tree_find(t, "hints"), .same_as = -1};
    if (!is_word(t->key, "-_"))
        return complain_at(&r->complaint, t, "expected a name of a-z, 0-9, - and _");
    const struct tree *layout, *folder;
    if (!read_allowed(r, t, keys) || !read_api(r, t, f) || !read_same_as(r, t, f))
        return false;
    if ((layout = tree_find(t, "layout")) != NULL && !read_choice(r, layout, file_names, &f->layout))
        return false;
    if ((folder = tree_find(t, "folder")) != NULL &&
        (folder->kind != TREE_SCALAR || !is_word(folder->text, "-_")))
        return complain_at(&r->complaint, folder, "expected a name of a-z, 0-9, - and _");
    f->folder = folder != NULL ? folder->text : NULL;
    if (layout != NULL && tree_find(t, "group") != NULL)
        return complain_at(&r->complaint, layout, "'group' has the place of 'layout'");
    if (!read_selection(r, tree_find(t, "ranks"), &f->ranks) || !read_member(r, t, "group", false, &f->group))
        return false;
    read_with_file(r, true);
    bool fine = read_file_values(r, t, f);
    read_with_file(r, false);
    return fine && check_members(r, t, f) && check_hints(r, f);
}

static bool read_files(struct reader *r, const struct tree *map) {
    struct workload *w = r->workload;
    if (map == NULL || map->kind != TREE_MAP || map->n == 0)
        return complain_at(&r->complaint, map != NULL ? map : w->tree,
                           "'files' is missing or has no members");
    w->file = calloc(map->n, sizeof *w->file);
    if (w->file == NULL)
        return complain_at(&r->complaint, map, "no memory");
    for (size_t i = 0; i < map->n; i++) {
        w->file_n++; /* what is read in part is freed, too */
        if (!read_file(r, map->item[i], &w->file[i]))
            return false;
    }
    return true;
}

static bool read_phase(struct reader *r, const struct tree *t, struct phase_of_workload *p) {
    static const char *const keys[] = {"name", "description", "actions", NULL};
    const struct tree *actions;
    if (!read_allowed(r, t, keys) || !read_name(r, t, &p->name) || !check_texts(r, t))
        return false;
    for (const struct phase_of_workload *other = r->workload->phase; other < p; other++)
        if (strcmp(other->name, p->name) == 0)
            return complain_at(&r->complaint, t, "a second phase '%s'", p->name);
    if ((actions = tree_find(t, "actions")) == NULL)
        return complain_at(&r->complaint, t, "'actions' is missing");
    return read_actions(r, actions, &p->action, &p->n);
}

static bool read_phases(struct reader *r, const struct tree *list) {
    struct workload *w = r->workload;
    if (list == NULL || list->kind != TREE_LIST || list->n == 0 || list->n > 1024)
        return complain_at(&r->complaint, list != NULL ? list : w->tree,
                           "'phases' is missing or no list of 1 to 1024 phases");
    w->phase = calloc(list->n, sizeof *w->phase);
    if (w->phase == NULL)
        return complain_at(&r->complaint, list, "no memory");
    for (size_t i = 0; i < list->n; i++) {
        w->phase_n++;
        if (!read_phase(r, list->item[i], &w->phase[i]))
            return false;
    }
    return true;
}

/* Each of so many bytes is new once. */
static bool read_kept_bytes(struct reader *r, const struct tree *place) {
    struct workload *w = r->workload;
    struct field field = {0};
    int64_t bytes = 0;
    bool is_known = read_field(r, place, &field) && field_value(&r->complaint, &field, &w->scope, 0, &bytes);
    expression_free(field.expression);
    if (is_known && (bytes < 1 || bytes > WORKLOAD_KEPT_BYTES))
        return complain_at(&r->complaint, place, "expected 1 to 2^40 bytes");
    w->read_memory = MEMORY_KEPT;
    w->kept_bytes = (uint64_t)bytes;
    return is_known;
}

static bool read_halo(struct reader *r, const struct tree *place) {
    struct field field = {0};
    int64_t *halo = &r->workload->halo;
    bool is_known = place == NULL || (read_field(r, place, &field) &&
                                      field_value(&r->complaint, &field, &r->workload->scope, 0, halo));
    expression_free(field.expression);
    return is_known &&
           ((*halo >= 0 && *halo <= 1) || complain_at(&r->complaint, place, "expected true or false"));
}

static bool read_memory(struct reader *r, const struct tree *map) {
    static const char *const keys[] = {"read", "write", "halo", NULL},
                             *const of_reads[] = {"rotating", "reused", "new", "a number of bytes", NULL},
                             *const of_writes[] = {"rotating", "reused", NULL};
    if (map == NULL)
        return true;
    if (!read_allowed(r, map, keys))
        return false;
    const struct tree *reads = tree_find(map, "read"), *writes = tree_find(map, "write");
    if (!read_halo(r, tree_find(map, "halo")))
        return false;
    if (writes != NULL && !read_choice(r, writes, of_writes, &r->workload->write_memory))
        return false;
    bool is_number = reads != NULL && reads->kind == TREE_SCALAR && isdigit((unsigned char)reads->text[0]);
    int *kind = &r->workload->read_memory;
    if (reads != NULL && !is_number && !read_choice(r, reads, of_reads, kind))
        return false;
    return !(is_number || *kind == MEMORY_KEPT) || read_kept_bytes(r, reads);
}

/* Names of every expression, and the values of this rank. */
static void make_scope(struct workload *w, const struct context *c, const struct placement *p) {
    static const char *const names[SLOT_FIRST] = {"ranks", "nodes", "", "", "", ""};
    const int values[SLOT_FIRST] = {c->size, p->nodes, c->rank, p->node, 1, 0};
    for (int i = 0; i < SLOT_FIRST; i++)
        scope_set(&w->constants, scope_push(&w->constants, names[i]), values[i]);
}

static void show_rank(struct workload *w) {
    w->scope = w->constants;
    strcpy(w->scope.slot[SLOT_RANK].name, "rank");
    strcpy(w->scope.slot[SLOT_NODE].name, "node");
}

static bool read_parts(struct reader *r, const struct context *c, const struct placement *p) {
    static const char *const keys[] = {"name",      "description", "source", "ranks",  "parameters",
                                       "variables", "memory",      "files",  "phases", NULL};
    struct workload *w = r->workload;
    make_scope(w, c, p);
    r->visible = &w->constants;
    if (!read_allowed(r, w->tree, keys) || !read_name(r, w->tree, &w->name) || !check_texts(r, w->tree) ||
        !check_ranks(r, tree_find(w->tree, "ranks"), c->size) ||
        !read_parameters(r, tree_find(w->tree, "parameters"), &c->options->sets))
        return false;
    show_rank(w);
    r->visible = &w->scope;
    return read_memory(r, tree_find(w->tree, "memory")) &&
           read_variables(r, tree_find(w->tree, "variables")) && read_files(r, tree_find(w->tree, "files")) &&
           read_phases(r, tree_find(w->tree, "phases"));
}

/* The text of the file on rank 0; NULL and a message where it cannot be read. */
static char *read_text(const struct context *c, size_t *length, char *message, size_t n) {
    const char *path = c->options->workload;
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        snprintf(message, n, "--workload %s: %s", path, strerror(errno));
        return NULL;
    }
    char *text = reallocate(c, NULL, WORKLOAD_FILE_BYTES + 1, "the description");
    errno = 0;
    *length = fread(text, 1, WORKLOAD_FILE_BYTES + 1, file);
    if (ferror(file))
        snprintf(message, n, "--workload %s: %s", path, strerror(errno));
    else if (*length > WORKLOAD_FILE_BYTES)
        snprintf(message, n, "--workload %s: larger than 16 MiB", path);
    fclose(file);
    if (message[0] == '\0')
        return text;
    free(text);
    return NULL;
}

/* Rank 0 reads, all have it. */
static char *share_text(const struct context *c, size_t *length, char *message, size_t n) {
    char *text = c->rank == 0 ? read_text(c, length, message, n) : NULL;
    uint64_t size = c->rank != 0 ? 0 : text != NULL ? *length : UINT64_MAX;
    CHECK_MPI(c, "", "MPI_Bcast", MPI_Bcast(&size, 1, MPI_UINT64_T, 0, c->world));
    if (size == UINT64_MAX)
        return NULL;
    if (c->rank != 0)
        text = allocate(c, size, "the description");
    CHECK_MPI(c, "", "MPI_Bcast", MPI_Bcast(text, (int)size, MPI_CHAR, 0, c->world));
    *length = size;
    return text;
}

struct workload *workload_read(const struct context *c, const struct placement *p, char *message, size_t n) {
    size_t length = 0;
    char why[512];
    message[0] = '\0';
    char *text = share_text(c, &length, message, n);
    if (text == NULL)
        return NULL;
    struct workload *w = allocate(c, sizeof *w, "the workload");
    w->path = c->options->workload;
    sha256_hex(text, length, w->sha256);
    w->tree = tree_read(text, length, why, sizeof why);
    free(text);
    struct reader r = {.workload = w, .complaint = {w->path, message, n}};
    if (w->tree == NULL)
        snprintf(message, n, "%s, %s", w->path, why);
    else if (read_parts(&r, c, p))
        return w;
    workload_free(w);
    return NULL;
}

static void free_selection(struct selection *s) {
    for (size_t i = 0; i < s->n; i++)
        expression_free(s->item[i].expression);
    free(s->item);
}

static void free_file(struct workload_file *f) {
    struct field one[] = {
        f->group, f->count, f->bytes, f->input, f->attributes, f->align, f->collective_metadata};
    for (size_t i = 0; i < sizeof one / sizeof *one; i++)
        expression_free(one[i].expression);
    for (int i = 0; i < f->dataset_n; i++) {
        for (int d = 0; d < WORKLOAD_DIMENSIONS; d++) {
            expression_free(f->dataset[i].shape[d].expression);
            expression_free(f->dataset[i].chunk[d].expression);
        }
        expression_free(f->dataset[i].count.expression);
        expression_free(f->dataset[i].fill.expression);
    }
    free(f->dataset);
    free_selection(&f->ranks);
    if (f->comm != MPI_COMM_NULL)
        MPI_Comm_free(&f->comm);
}

void workload_free(struct workload *w) {
    if (w == NULL)
        return;
    for (int i = 0; i < w->file_n; i++)
        free_file(&w->file[i]);
    for (int i = 0; i < w->phase_n; i++)
        free_actions(w->phase[i].action, w->phase[i].n);
    for (int i = 0; i < SCOPE_SLOTS; i++)
        free(w->text[i]);
    free(w->file);
    free(w->phase);
    tree_free(w->tree);
    free(w);
}
