#include "backend.h"
#include "fail.h"

#include <string.h>

#ifdef BENCHIO_HDF5
#define HDF5 &backend_hdf5, NULL
#else
#define HDF5 NULL, BENCHIO_NO_HDF5
#endif
#ifdef BENCHIO_NETCDF4
#define NETCDF4 &backend_netcdf4, NULL
#else
#define NETCDF4 NULL, BENCHIO_NO_NETCDF4
#endif
#ifdef BENCHIO_PNETCDF
#define PNETCDF &backend_pnetcdf, NULL
#else
#define PNETCDF NULL, BENCHIO_NO_PNETCDF
#endif

const struct backend_entry backends[] = {
    {"posix", &backend_posix, NULL},
    {"mpiio", &backend_mpiio, NULL},
    {"hdf5", HDF5},
    {"netcdf4", NETCDF4},
    {"pnetcdf", PNETCDF},
    {"null", &backend_null, NULL},
};

const int backend_count = sizeof backends / sizeof *backends;

void backend_append_info(const struct context *c, MPI_Info info, struct hints *hints) {
    int n = 0;
    CHECK_MPI(c, "", "MPI_Info_get_nkeys", MPI_Info_get_nkeys(info, &n));
    for (int i = 0; i < n; i++) {
        char key[MPI_MAX_INFO_KEY + 1], value[MPI_MAX_INFO_VAL + 1] = "";
        int present = 0;
        CHECK_MPI(c, "", "MPI_Info_get_nthkey", MPI_Info_get_nthkey(info, i, key));
        CHECK_MPI(c, "", "MPI_Info_get", MPI_Info_get(info, key, MPI_MAX_INFO_VAL, value, &present));
        if (strcmp(key, UNKNOWN_HINT) == 0) {
            hints->repeats = true;
            continue;
        }
        hints->item = reallocate(c, hints->item, (hints->n + 1) * sizeof *hints->item, "hints in force");
        hints->item[hints->n++] = (struct hint){.key = copy_text(c, key, "hints in force"),
                                                .value = copy_text(c, value, "hints in force")};
    }
}
