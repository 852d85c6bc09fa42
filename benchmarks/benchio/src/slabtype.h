/* MPI datatypes of slabs, for backends that pass them on. */
#ifndef BENCHIO_SLABTYPE_H
#define BENCHIO_SLABTYPE_H

#include "backend.h"

/* The box of a slab inside its memory, committed; free it with MPI_Type_free. */
MPI_Datatype slab_memory_type(const struct file *file, const struct slab *slab);
/* The block3d box of this rank inside the file, committed. */
MPI_Datatype geometry_file_type(const struct file *file);
/* The box of a workload's operation in its array of bytes, committed; it is not empty. */
MPI_Datatype slab_box_type(const struct file *file, const struct piece *piece);
/* The box of a workload's operation in memory with a halo, committed; it is not empty. */
MPI_Datatype slab_halo_type(const struct file *file, const struct piece *piece, MPI_Datatype element);
/* The parts of a workload's operation from the first one on, committed. */
MPI_Datatype slab_parts_type(const struct file *file, const struct piece *piece);

#endif
