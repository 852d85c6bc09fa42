/* MPI-IO. block3d: the file view is this rank's box, set once; each step is a range of it. */
#include "backend.h"

#include <stdio.h>
#include <stdlib.h>

#include "fail.h"
#include "slabtype.h"

struct state {
    MPI_File handle;
    MPI_Datatype file_type;
};

static void version(char *text, size_t n) {
    snprintf(text, n, "%s", "");
}

static void open_file(struct file *f) {
    struct state *state = f->state = allocate(f->context, sizeof *state, "MPI-IO state");
    int mode = f->writing ? MPI_MODE_WRONLY | MPI_MODE_CREATE : MPI_MODE_RDONLY;
    CHECK_MPI(f->context, f->path, f->writing ? "MPI_File_open for writing" : "MPI_File_open for reading",
              MPI_File_open(f->comm, f->path, mode, f->info, &state->handle));
    state->file_type = MPI_DATATYPE_NULL;
    f->data_offset = 0;
    if (f->geometry->pattern != PATTERN_BLOCK3D)
        return;
    state->file_type = geometry_file_type(f);
    CHECK_MPI(f->context, f->path, "MPI_File_set_view",
              MPI_File_set_view(state->handle, 0, MPI_DOUBLE, state->file_type, "native", f->info));
}

static int call(const struct file *f, MPI_Offset at, void *memory, int n, MPI_Datatype type,
                MPI_Status *status) {
    const struct state *s = f->state;
    if (f->writing)
        return f->collective ? MPI_File_write_at_all(s->handle, at, memory, n, type, status)
                             : MPI_File_write_at(s->handle, at, memory, n, type, status);
    return f->collective ? MPI_File_read_at_all(s->handle, at, memory, n, type, status)
                         : MPI_File_read_at(s->handle, at, memory, n, type, status);
}

/* A library may report success although it moved less (docs/benchio.md). ROMIO of Open MPI does not set the
 * status of a rank that moves nothing. */
static void check_count(const struct file *f, MPI_Status *status, MPI_Datatype basic, uint64_t expected) {
    MPI_Count moved = 0;
    if (expected == 0)
        return;
    CHECK_MPI(f->context, f->path, "MPI_Get_elements_x", MPI_Get_elements_x(status, basic, &moved));
    if (moved < 0 || (uint64_t)moved != expected)
        fail(f->context, EXIT_BROKEN, PLACE(f->path, f->writing ? "MPI_File_write" : "MPI_File_read"),
             "%lld of %llu elements moved although the library reports success", (long long)moved,
             (unsigned long long)expected);
}

static void transfer(struct file *f, const struct slab *s) {
    MPI_Status status;
    const char *operation = f->writing ? "MPI_File_write" : "MPI_File_read";
    if (s->ndims < 3) {
        CHECK_MPI(f->context, f->path, operation,
                  call(f, (MPI_Offset)s->first, s->memory, (int)s->elements, MPI_BYTE, &status));
        check_count(f, &status, MPI_BYTE, s->elements);
        return;
    }
    const struct geometry *g = f->geometry;
    MPI_Offset at = (MPI_Offset)((s->start[0] - g->start[0]) * g->count[1] * g->count[2]);
    if (s->elements == 0) { /* takes part in the collective call */
        CHECK_MPI(f->context, f->path, operation, call(f, at, s->memory, 0, MPI_DOUBLE, &status));
        return;
    }
    MPI_Datatype type = slab_memory_type(f, s);
    CHECK_MPI(f->context, f->path, operation, call(f, at, s->memory, 1, type, &status));
    check_count(f, &status, MPI_DOUBLE, s->elements);
    MPI_Type_free(&type);
}

static void sync_file(struct file *f) {
    const struct state *s = f->state;
    CHECK_MPI(f->context, f->path, "MPI_File_sync", MPI_File_sync(s->handle));
}

static void close_file(struct file *f) {
    struct state *s = f->state;
    CHECK_MPI(f->context, f->path, "MPI_File_close", MPI_File_close(&s->handle));
    if (s->file_type != MPI_DATATYPE_NULL)
        MPI_Type_free(&s->file_type);
    free(s);
}

static void describe(struct file *f) {
    const struct state *s = f->state;
    MPI_Info info;
    CHECK_MPI(f->context, f->path, "MPI_File_get_info", MPI_File_get_info(s->handle, &info));
    backend_append_info(f->context, info, f->hints);
    MPI_Info_free(&info);
}

static void open_bytes(struct file *f) {
    struct state *state = f->state = allocate(f->context, sizeof *state, "MPI-IO state");
    int mode = (f->writing ? (f->reading ? MPI_MODE_RDWR : MPI_MODE_WRONLY) : MPI_MODE_RDONLY) |
               (f->creating ? MPI_MODE_CREATE : 0);
    CHECK_MPI(f->context, f->path, f->creating ? "MPI_File_open to create" : "MPI_File_open",
              MPI_File_open(f->comm, f->path, mode, f->info, &state->handle));
    state->file_type = MPI_DATATYPE_NULL;
}

static void set_view(const struct file *f, uint64_t offset, MPI_Datatype type) {
    const struct state *s = f->state;
    CHECK_MPI(f->context, f->path, "MPI_File_set_view",
              MPI_File_set_view(s->handle, (MPI_Offset)offset, MPI_BYTE, type, "native", f->info));
}

static void move_row(const struct file *f, uint64_t offset, const struct piece *p) {
    MPI_Status status;
    bool gathered = p->halo && p->bytes > 0;
    MPI_Datatype type = gathered ? slab_halo_type(f, p, MPI_BYTE) : MPI_BYTE;
    CHECK_MPI(f->context, f->path, f->writing ? "MPI_File_write" : "MPI_File_read",
              call(f, (MPI_Offset)offset, p->memory, gathered ? 1 : (int)p->bytes, type, &status));
    if (!p->is_short)
        check_count(f, &status, MPI_BYTE, p->bytes);
    if (gathered)
        MPI_Type_free(&type);
}

/* As HDF5 and PnetCDF do it: through a file view of its own, with which all ranks agree. */
static void move_bytes(struct file *f, const struct piece *p) {
    if (p->ndims == 0 && p->part_n == 0) {
        move_row(f, p->offset, p);
        return;
    }
    MPI_Datatype type = MPI_BYTE;
    if (p->bytes > 0 && p->part_n != 1)
        type = p->part_n > 0 ? slab_parts_type(f, p) : slab_box_type(f, p);
    set_view(f, p->offset, type);
    move_row(f, 0, p);
    set_view(f, 0, MPI_BYTE);
    if (type != MPI_BYTE)
        MPI_Type_free(&type);
}

static const struct workload_io bytes_io = {
    .takes_halo = true, .open = open_bytes, .move = move_bytes, .sync = sync_file, .close = close_file};

const struct backend backend_mpiio = {
    .name = "mpiio",
    .has_access = true,
    .has_hints = true,
    .has_files = true,
    .version = version,
    .open = open_file,
    .transfer = transfer,
    .sync = sync_file,
    .close = close_file,
    .describe = describe,
    .workload = &bytes_io,
};
