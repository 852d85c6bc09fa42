#include <mpi.h>
#if defined(OPEN_MPI)
#error benchio-mpi openmpi
#elif defined(MPICH) || defined(MPICH_VERSION)
#error benchio-mpi mpich
#else
#error benchio-mpi other
#endif
