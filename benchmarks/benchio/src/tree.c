#include "tree.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef BENCHIO_YAML
#include <yaml.h>

/* 16 repeats, each with its list of actions, and what is around and inside. */
#define DEEPEST 48
/* Keys are compared with each other. */
#define MOST_KEYS 4096

struct reader {
    yaml_parser_t parser;
    char *why;
    size_t size;
};

static void complain(struct reader *r, const yaml_mark_t *mark, const char *words) {
    if (r->why[0] == '\0')
        snprintf(r->why, r->size, "line %zu, column %zu: %s", mark->line + 1, mark->column + 1, words);
}

static bool next(struct reader *r, yaml_event_t *event) {
    if (yaml_parser_parse(&r->parser, event))
        return true;
    char words[256];
    snprintf(words, sizeof words, "%s%s%s", r->parser.problem != NULL ? r->parser.problem : "not readable",
             r->parser.context != NULL ? " " : "", r->parser.context != NULL ? r->parser.context : "");
    complain(r, &r->parser.problem_mark, words);
    *event = (yaml_event_t){0};
    return false;
}

static struct tree *make(enum kind kind, const yaml_event_t *event, const struct tree *parent) {
    struct tree *t = calloc(1, sizeof *t);
    if (t != NULL)
        *t = (struct tree){.kind = kind, .line = (int)event->start_mark.line + 1, .parent = parent};
    return t;
}

static bool append(struct tree *t, struct tree *child) {
    if ((t->n & (t->n - 1)) == 0) { /* full: 0, 1, 2, 4, 8, ... */
        struct tree **item = realloc(t->item, (t->n == 0 ? 1 : 2 * t->n) * sizeof *item);
        if (item == NULL)
            return false;
        t->item = item;
    }
    t->item[t->n++] = child;
    return true;
}

static struct tree *read_node(struct reader *r, const yaml_event_t *event, const struct tree *parent,
                              int depth);

static struct tree *read_scalar(struct reader *r, const yaml_event_t *event, const struct tree *parent) {
    struct tree *t = make(TREE_SCALAR, event, parent);
    if (t != NULL) {
        t->text = strdup((const char *)event->data.scalar.value);
        t->quoted = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    }
    if (t == NULL || t->text == NULL)
        complain(r, &event->start_mark, "no memory");
    else if (strlen(t->text) != event->data.scalar.length)
        complain(r, &event->start_mark, "a text with a character 0");
    return t;
}

/* The key of the next member; false: there is none, or it is none. */
static bool read_key(struct reader *r, const yaml_event_t *event, const struct tree *map, char **key) {
    if (event->type != YAML_SCALAR_EVENT) {
        complain(r, &event->start_mark, "a key must be a word");
        return false;
    }
    *key = strdup((const char *)event->data.scalar.value);
    if (*key == NULL) {
        complain(r, &event->start_mark, "no memory");
        return false;
    }
    char words[128];
    snprintf(words, sizeof words, "'%.64s' is there twice", *key);
    if (map->n == MOST_KEYS)
        complain(r, &event->start_mark, "more than 4096 members");
    else if (tree_find(map, *key) != NULL)
        complain(r, &event->start_mark, words);
    return r->why[0] == '\0';
}

static struct tree *read_collection(struct reader *r, const yaml_event_t *start, const struct tree *parent,
                                    int depth) {
    bool is_map = start->type == YAML_MAPPING_START_EVENT;
    struct tree *t = make(is_map ? TREE_MAP : TREE_LIST, start, parent);
    yaml_event_type_t end = is_map ? YAML_MAPPING_END_EVENT : YAML_SEQUENCE_END_EVENT;
    yaml_event_t event;
    if (t == NULL || depth > DEEPEST) {
        complain(r, &start->start_mark, t == NULL ? "no memory" : "nested too deeply");
        return t;
    }
    while (r->why[0] == '\0' && next(r, &event)) {
        char *key = NULL;
        bool ended = event.type == end;
        if (!ended && is_map && read_key(r, &event, t, &key)) {
            yaml_event_delete(&event);
            if (!next(r, &event)) {
                free(key);
                break;
            }
        }
        struct tree *child = ended || r->why[0] != '\0' ? NULL : read_node(r, &event, t, depth + 1);
        if (child != NULL)
            child->key = key;
        else
            free(key);
        if (child != NULL && !append(t, child)) {
            tree_free(child);
            complain(r, &event.start_mark, "no memory");
        }
        yaml_event_delete(&event);
        if (ended)
            break;
    }
    return t;
}

static struct tree *read_node(struct reader *r, const yaml_event_t *event, const struct tree *parent,
                              int depth) {
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        return read_scalar(r, event, parent);
    case YAML_SEQUENCE_START_EVENT:
    case YAML_MAPPING_START_EVENT:
        return read_collection(r, event, parent, depth);
    default:
        complain(r, &event->start_mark, "an alias is refused: write out what it stands for");
        return NULL;
    }
}

struct tree *tree_read(const char *text, size_t length, char *why, size_t size) {
    struct reader r = {.why = why, .size = size};
    struct tree *t = NULL;
    yaml_event_t event;
    why[0] = '\0';
    if (!yaml_parser_initialize(&r.parser)) {
        snprintf(why, size, "no memory");
        return NULL;
    }
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, length);
    for (bool more = true; more && why[0] == '\0' && next(&r, &event);) {
        yaml_event_type_t type = event.type;
        more = type != YAML_STREAM_END_EVENT;
        bool frame = type == YAML_STREAM_START_EVENT || type == YAML_DOCUMENT_START_EVENT ||
                     type == YAML_DOCUMENT_END_EVENT || !more;
        if (!frame && t == NULL)
            t = read_node(&r, &event, NULL, 0);
        else if (!frame || (type == YAML_DOCUMENT_START_EVENT && t != NULL))
            complain(&r, &event.start_mark, "a second document");
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&r.parser);
    if (t == NULL && why[0] == '\0')
        snprintf(why, size, "the file is empty");
    if (why[0] == '\0')
        return t;
    tree_free(t);
    return NULL;
}

const char *tree_library(void) {
    static char text[64];
    snprintf(text, sizeof text, "libyaml %s", yaml_get_version_string());
    return text;
}
#else
const char *tree_library(void) {
    return "not built: no libyaml (Debian libyaml-dev, Spack libyaml)";
}

struct tree *tree_read(const char *text, size_t length, char *why, size_t size) {
    (void)text, (void)length;
    snprintf(why, size,
             "this benchio was built without libyaml: install it (Debian libyaml-dev, Spack libyaml) and "
             "build again");
    return NULL;
}
#endif

void tree_free(struct tree *t) {
    if (t == NULL)
        return;
    for (size_t i = 0; i < t->n; i++)
        tree_free(t->item[i]);
    free(t->item);
    free(t->key);
    free(t->text);
    free(t);
}

struct tree *tree_find(const struct tree *map, const char *key) {
    for (size_t i = 0; map != NULL && i < map->n; i++)
        if (map->item[i]->key != NULL && strcmp(map->item[i]->key, key) == 0)
            return map->item[i];
    return NULL;
}

/* The path from the top. */
static size_t place_path(const struct tree *t, char *text, size_t size) {
    if (t->parent == NULL)
        return 0;
    size_t used = place_path(t->parent, text, size), left = used < size ? size - used : 0;
    char *end = text + (left > 0 ? used : 0);
    if (t->key != NULL)
        return used + (size_t)snprintf(end, left, "%s%.64s", used > 0 ? "." : "", t->key);
    size_t i = 0;
    while (i < t->parent->n && t->parent->item[i] != t)
        i++;
    return used + (size_t)snprintf(end, left, "[%zu]", i);
}

void tree_place(const struct tree *t, char *text, size_t size) {
    int used = snprintf(text, size, "line %d, ", t->line);
    if (place_path(t, text + used, size - (size_t)used) == 0)
        text[used - 2] = '\0';
}
