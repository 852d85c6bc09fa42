/* A workload (docs/workloads.md): what a description says, and what of it is true for this rank. */
#ifndef BENCHIO_WORKLOAD_H
#define BENCHIO_WORKLOAD_H

#include "backend.h"
#include "expression.h"
#include "placement.h"
#include "size.h"
#include "tree.h"

#define WORKLOAD_DIMENSIONS 8
#define WORKLOAD_DEPTH 16
#define WORKLOAD_FILE_BYTES ((size_t)16 << 20)
#define WORKLOAD_COUNT ((int64_t)1 << 20)
/* Of one operation: counts of MPI are int. */
#define WORKLOAD_PIECE_BYTES ((uint64_t)INT32_MAX)
/* Actions and operations of one rank in one repetition; what is larger would be an endless check. */
#define WORKLOAD_ACTIONS ((uint64_t)10000000)

#define BENCHIO_ELEMENTS(X)                                                                                  \
    X(ELEMENT_BYTE, "byte")                                                                                  \
    X(ELEMENT_INT, "int")                                                                                    \
    X(ELEMENT_LONG, "long")                                                                                  \
    X(ELEMENT_FLOAT, "float")                                                                                \
    X(ELEMENT_DOUBLE, "double")
enum element { BENCHIO_ELEMENTS(BENCHIO_ENUM) };
extern const char *const element_names[];
extern const unsigned element_bytes[];

#define BENCHIO_VERBS(X)                                                                                     \
    X(DO_CREATE, "create")                                                                                   \
    X(DO_OPEN, "open")                                                                                       \
    X(DO_WRITE, "write")                                                                                     \
    X(DO_READ, "read")                                                                                       \
    X(DO_FLUSH, "flush")                                                                                     \
    X(DO_CLOSE, "close")                                                                                     \
    X(DO_STAT, "stat")                                                                                       \
    X(DO_REMOVE, "remove")                                                                                   \
    X(DO_COMPUTE, "compute")                                                                                 \
    X(DO_WORK, "work")                                                                                       \
    X(DO_REPEAT, "repeat")                                                                                   \
    X(DO_BARRIER, "barrier")
enum verb { BENCHIO_VERBS(BENCHIO_ENUM) };
extern const char *const verb_names[];

#define BENCHIO_MODES(X)                                                                                     \
    X(MODE_READ, "read")                                                                                     \
    X(MODE_WRITE, "write")                                                                                   \
    X(MODE_READ_WRITE, "read-write")
enum mode { BENCHIO_MODES(BENCHIO_ENUM) };
extern const char *const mode_names[];

/* An expression and where it is; `expression` NULL: not given. */
struct field {
    const struct tree *place;
    struct expression *expression;
};

/* Which ranks: all where n is 0; an expression that is not 0; a list of ranks. */
struct selection {
    bool is_list;
    size_t n;
    struct field *item;
};

struct dataset {
    const struct tree *place;
    const char *name;
    int type, ndims;
    struct field shape[WORKLOAD_DIMENSIONS], chunk[WORKLOAD_DIMENSIONS], count, fill;
    int chunk_ndims;
    /* Values on this rank */
    int64_t dims[WORKLOAD_DIMENSIONS], chunk_dims[WORKLOAD_DIMENSIONS], copies, filled;
    uint64_t bytes; /* of one copy */
};

struct workload_file {
    const struct tree *place;
    const char *name;
    int api; /* index into backends[] */
    int layout;
    int same_as; /* index of the file that this one is, through another interface; -1: a file of its own */
    struct field group, count, bytes, input, attributes, align, collective_metadata;
    struct selection ranks;
    const struct tree *hints;
    const char *folder; /* group of HDF5 that holds the data sets; NULL: the root */
    struct dataset *dataset;
    int dataset_n;
    bool moves, collective; /* some transfer is there; it is collective */
    /* Values on this rank */
    bool member;
    int color, comm_rank, comm_ranks; /* color: what ranks with the same file have in common */
    MPI_Comm comm;                    /* MPI_COMM_NULL: no part in it */
    int64_t copies, limit, is_input, attribute_bytes, alignment, metadata;
};

struct action {
    enum verb verb;
    const struct tree *place;
    int file, dataset, mode;   /* -1: none */
    bool collective, is_short; /* is_short: a read may reach behind the end of the file */
    struct selection ranks;
    struct field number, dataset_number, offset, size, count, stride, amount;
    struct field *start, *extent; /* of a box: one per dimension */
    struct field *shape;          /* of an array of bytes; of a data set NULL */
    int ndims;                    /* of `shape` */
    struct field *list;           /* pairs of offset and size */
    size_t list_n;
    int64_t *part; /* of a file view: the values of these pairs now; NULL: no view */
    size_t part_n;
    int index; /* slot, -1: none */
    struct action *action;
    size_t n;
};

struct phase_of_workload {
    const char *name;
    struct action *action;
    size_t n;
    uint64_t bytes_read, bytes_written, operations; /* of this rank, then of all (workload_check) */
};

/* The memory that transfers use: around in RING_BYTES, the same for each; reads only: not yet mapped, or
 * around in memory that is not mapped at first. */
enum memory { MEMORY_ROTATING, MEMORY_REUSED, MEMORY_NEW, MEMORY_KEPT };
#define WORKLOAD_KEPT_BYTES ((int64_t)1 << 40)

struct workload {
    const char *path, *name;
    char sha256[65];
    struct tree *tree;
    struct scope constants;  /* ranks, nodes and parameters: the same on all ranks */
    struct scope scope;      /* of this rank, with variables and indices */
    char *text[SCOPE_SLOTS]; /* of parameters */
    struct workload_file *file;
    int file_n;
    struct phase_of_workload *phase;
    int phase_n;
    int read_memory, write_memory;
    uint64_t kept_bytes;
    int64_t halo;          /* the boxes of transfers are inside of larger arrays in memory */
    uint64_t piece_bytes;  /* memory of the largest operation of this rank */
    uint64_t needed_bytes; /* all files together */
    uint64_t files;        /* all files together */
};

/* The fixed slots; those of parameters, variables and indices follow. */
enum { SLOT_RANKS, SLOT_NODES, SLOT_RANK, SLOT_NODE, SLOT_FILE_RANKS, SLOT_FILE_RANK, SLOT_FIRST };

/* Where a complaint goes: `FILE, line 3, files.log.bytes: ...`; the first one counts. Always false. */
struct complaint {
    const char *path;
    char *text;
    size_t n;
};
bool complain_at(struct complaint *complaint, const struct tree *place, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Collective: rank 0 reads the file, all parse it. NULL and a message (the same on all ranks) if it is not
 * valid. */
struct workload *workload_read(const struct context *context, const struct placement *placement,
                               char *message, size_t n);
void workload_free(struct workload *workload);

/* Of workload_read(): the actions of a phase (workload_actions.c). */
struct reader {
    struct workload *workload;
    struct complaint complaint;
    const struct scope *visible; /* names that an expression may use here */
    int depth;
};
/* Is it a name for a parameter, a variable or an index? */
bool read_is_variable(const char *word);
bool read_actions(struct reader *reader, const struct tree *list, struct action **action, size_t *n);
void free_actions(struct action *action, size_t n);
/* Show or hide file_ranks and file_rank: names that only what belongs to a file knows. */
void read_with_file(struct reader *reader, bool shown);
bool read_allowed(struct reader *reader, const struct tree *map, const char *const *keys);
bool read_field(struct reader *reader, const struct tree *place, struct field *field);
bool read_member(struct reader *reader, const struct tree *map, const char *key, bool required,
                 struct field *field);
bool read_vector(struct reader *reader, const struct tree *list, struct field *field, int *n);
bool read_selection(struct reader *reader, const struct tree *place, struct selection *selection);
bool read_choice(struct reader *reader, const struct tree *place, const char *const *choices, int *choice);
/* The value of a field, or `otherwise` where it is not given. */
bool field_value(struct complaint *complaint, const struct field *field, const struct scope *scope,
                 int64_t otherwise, int64_t *value);
/* Is this rank selected? */
bool selection_has(struct complaint *complaint, const struct selection *selection, const struct scope *scope,
                   bool *selected);

/* The file that has this one's name, layout, number and data. */
static inline const struct workload_file *workload_stored_file(const struct workload *w,
                                                               const struct workload_file *f) {
    return f->same_as >= 0 ? &w->file[f->same_as] : f;
}

/* The name of a data set (one of several copies: `name_0007`), and its number in the file; NULL: how many
 * there are. */
#define WORKLOAD_SET_NAME (NAME_LENGTH + 24)
void workload_set_name(const struct dataset *set, int64_t copy, char name[WORKLOAD_SET_NAME]);
size_t workload_set_index(const struct workload_file *file, const struct dataset *set, int64_t copy);

/* Collective: the values of this rank, and communicators; false and a message on at least one rank. */
bool workload_resolve(struct workload *workload, const struct context *context, char *message, size_t n);
/* Collective: every operation of every rank, without doing it; as above. */
bool workload_check(struct workload *workload, const struct context *context, char *message, size_t n);

#endif
