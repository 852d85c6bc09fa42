/* The raw limit for one process: nothing but open, pwrite of one buffer, fsync, close. Prints bytes per
 * second, one repetition a line. Usage: raw FILE TRANSFER_BYTES TRANSFERS REPETITIONS SYNC(0|1) */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int once(const char *path, const char *buffer, size_t n, long transfers, int sync, double *rate) {
    unlink(path);
    double start = now();
    int fd = open(path, O_WRONLY | O_CREAT, 0666);
    if (fd < 0)
        return 0;
    for (long i = 0; i < transfers; i++)
        if (pwrite(fd, buffer, n, (off_t)((size_t)i * n)) != (ssize_t)n)
            return 0;
    if ((sync && fsync(fd) != 0) || close(fd) != 0)
        return 0;
    *rate = (double)n * (double)transfers / (now() - start);
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 6)
        return 2;
    size_t n = strtoul(argv[2], NULL, 10);
    char *buffer = aligned_alloc(4096, (n + 4095) / 4096 * 4096);
    if (buffer == NULL)
        return 3;
    memset(buffer, 0x5a, n);
    for (int i = 0; i < atoi(argv[4]); i++) {
        double rate;
        if (!once(argv[1], buffer, n, atol(argv[3]), atoi(argv[5]), &rate)) {
            perror(argv[1]);
            return 3;
        }
        printf("%.1f\n", rate);
    }
    unlink(argv[1]);
    free(buffer);
    return 0;
}
