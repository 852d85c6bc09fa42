/* LD_PRELOAD: ftruncate takes 50 ms. */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

int ftruncate(int file, off_t size) {
    usleep(50000);
    return (int)syscall(SYS_ftruncate, file, size);
}

int ftruncate64(int file, off_t size) {
    return ftruncate(file, size);
}
