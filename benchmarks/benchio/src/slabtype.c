#include "slabtype.h"

#include <stdlib.h>

#include "fail.h"
#include "workload_data.h"

static MPI_Datatype subarray(const struct file *f, int ndims, const uint64_t *dims, const uint64_t *count,
                             const uint64_t *start, MPI_Datatype element) {
    int d[WORKLOAD_DIMENSIONS], n[WORKLOAD_DIMENSIONS], s[WORKLOAD_DIMENSIONS];
    MPI_Datatype type;
    for (int i = 0; i < ndims; i++)
        d[i] = (int)dims[i], n[i] = (int)count[i], s[i] = (int)start[i];
    CHECK_MPI(f->context, f->path, "MPI_Type_create_subarray",
              MPI_Type_create_subarray(ndims, d, n, s, MPI_ORDER_C, element, &type));
    CHECK_MPI(f->context, f->path, "MPI_Type_commit", MPI_Type_commit(&type));
    return type;
}

MPI_Datatype slab_memory_type(const struct file *f, const struct slab *s) {
    return subarray(f, 3, s->memory_dims, s->count, s->memory_start, MPI_DOUBLE);
}

MPI_Datatype geometry_file_type(const struct file *f) {
    return subarray(f, 3, f->geometry->dims, f->geometry->count, f->geometry->start, MPI_DOUBLE);
}

MPI_Datatype slab_box_type(const struct file *f, const struct piece *p) {
    return subarray(f, p->ndims, (const uint64_t *)p->dims, (const uint64_t *)p->extent,
                    (const uint64_t *)p->start, MPI_BYTE);
}

MPI_Datatype slab_halo_type(const struct file *f, const struct piece *p, MPI_Datatype element) {
    uint64_t dims[WORKLOAD_DIMENSIONS], start[WORKLOAD_DIMENSIONS];
    piece_memory(p, dims, start);
    return subarray(f, p->ndims, dims, (const uint64_t *)p->extent, start, element);
}

MPI_Datatype slab_parts_type(const struct file *f, const struct piece *p) {
    int *length = allocate(f->context, p->part_n * sizeof *length, "a file view");
    MPI_Aint *place = allocate(f->context, p->part_n * sizeof *place, "a file view");
    MPI_Datatype type;
    for (size_t i = 0; i < p->part_n; i++) {
        length[i] = (int)p->part[2 * i + 1];
        place[i] = (MPI_Aint)(p->part[2 * i] - p->part[0]);
    }
    CHECK_MPI(f->context, f->path, "MPI_Type_create_hindexed",
              MPI_Type_create_hindexed((int)p->part_n, length, place, MPI_BYTE, &type));
    CHECK_MPI(f->context, f->path, "MPI_Type_commit", MPI_Type_commit(&type));
    free(length);
    free(place);
    return type;
}
