#include "slabtype.h"

#include "fail.h"

static MPI_Datatype subarray(const struct file *f, const uint64_t dims[3], const uint64_t count[3],
                             const uint64_t start[3]) {
    int d[3], n[3], s[3];
    MPI_Datatype type;
    for (int i = 0; i < 3; i++)
        d[i] = (int)dims[i], n[i] = (int)count[i], s[i] = (int)start[i];
    CHECK_MPI(f->context, f->path, "MPI_Type_create_subarray",
              MPI_Type_create_subarray(3, d, n, s, MPI_ORDER_C, MPI_DOUBLE, &type));
    CHECK_MPI(f->context, f->path, "MPI_Type_commit", MPI_Type_commit(&type));
    return type;
}

MPI_Datatype slab_memory_type(const struct file *f, const struct slab *s) {
    return subarray(f, s->memory_dims, s->count, s->memory_start);
}

MPI_Datatype geometry_file_type(const struct file *f) {
    return subarray(f, f->geometry->dims, f->geometry->count, f->geometry->start);
}
