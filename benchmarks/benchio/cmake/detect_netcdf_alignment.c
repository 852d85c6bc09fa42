#include <netcdf.h>
int main(void) {
    return nc_set_alignment(1, 1);
}
