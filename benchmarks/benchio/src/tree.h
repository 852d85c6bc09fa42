/* A YAML (or JSON) document as a tree that keeps lines, so that a message can name line and field. */
#ifndef BENCHIO_TREE_H
#define BENCHIO_TREE_H

#include <stdbool.h>
#include <stddef.h>

enum kind { TREE_SCALAR, TREE_LIST, TREE_MAP };

struct tree {
    enum kind kind;
    int line;    /* from 1 */
    char *key;   /* in a map; NULL otherwise */
    char *text;  /* of a scalar */
    bool quoted; /* a scalar in quotes */
    size_t n;    /* members of a list or map, in the order of the document */
    struct tree **item;
    const struct tree *parent;
};

/* NULL and the reason in `why` (of `size` bytes, with line and column) where the text is no such document. */
struct tree *tree_read(const char *text, size_t length, char *why, size_t size);
/* Name and version of the library that reads them, or why there is none. */
const char *tree_library(void);
void tree_free(struct tree *tree);

/* The member of a map; NULL: it has none. */
struct tree *tree_find(const struct tree *map, const char *key);
/* `line 12, phases[0].actions[3].offset` */
void tree_place(const struct tree *tree, char *text, size_t size);

#endif
