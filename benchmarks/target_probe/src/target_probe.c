/* Writes and reads a small file on each target of a file system, one target after the other.

     target_probe LIST [BYTES [REPETITIONS [SECONDS [MOST [DAY]]]]]

   LIST has one line per target: name, location and file, separated by tabs; an existing file (with a layout
   on its target) is used, another one is made. The files are removed as soon as they are open. SECONDS are
   those of one target in all repetitions: what takes longer moves fewer bytes. Of more than MOST targets each
   DAY (since 1970) has a part, in turn. docs/benchmarks.md describes the output. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define FORMAT 1
#define CHUNK (256L << 10)
#define MAX_BYTES (1L << 30)
#define MAX_REPETITIONS 100
#define MAX_TARGETS 100000
/* A target that does not answer for so long ends the program: the others could not be measured, either. */
#define STUCK_S 60
/* Share of a file that may remain in the page cache, as in benchio's measure.c. */
#define MOSTLY_DROPPED 0.01

struct target {
    char *name, *location, *file;
    long bytes;     /* of the next write */
    int descriptor; /* -1: the target failed */
};

struct targets {
    struct target *all;
    long count;
};

struct transfer {
    long bytes;
    double seconds;
};

struct settings {
    long bytes, repetitions, most, day;
    double limit_s; /* of one transfer */
};

static void fail(const char *message, const char *value) {
    fflush(stdout);
    fprintf(stderr, "target_probe: error: %s: %s\n", message, value);
    exit(2);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static uint32_t update_crc(uint32_t crc, const unsigned char *data, size_t bytes) {
    static uint32_t table[256];
    if (table[1] == 0)
        for (uint32_t byte = 0; byte < 256; byte++) {
            table[byte] = byte;
            for (int bit = 0; bit < 8; bit++)
                table[byte] = table[byte] >> 1 ^ (0xedb88320 & -(table[byte] & 1));
        }
    for (size_t i = 0; i < bytes; i++)
        crc = crc >> 8 ^ table[(crc ^ data[i]) & 0xff];
    return crc;
}

static uint32_t crc_of(const unsigned char *data, size_t bytes) {
    return ~update_crc(0xffffffff, data, bytes);
}

/* CRC-32 of all lines that were printed, as zlib has it: figures of a line have nothing else to check them
 * by. */
static uint32_t checksum = 0xffffffff;

static void print_line(const char *format, ...) {
    char *line = NULL;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&line, format, arguments);
    va_end(arguments);
    if (length < 0)
        fail("out of memory", "a line");
    puts(line);
    checksum = update_crc(checksum, (const unsigned char *)line, (size_t)length);
    free(line);
}

/* What the main thread does now, for the thread that watches it: a call that hangs cannot be interrupted. */
static struct {
    pthread_mutex_t lock;
    const struct target *target;
    const char *step;
    double begun;
} current = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void begin_step(const struct target *target, const char *step) {
    pthread_mutex_lock(&current.lock);
    current.target = target;
    current.step = step;
    current.begun = now();
    pthread_mutex_unlock(&current.lock);
}

static void *watch(void *unused) {
    (void)unused;
    for (;;) {
        sleep(1);
        pthread_mutex_lock(&current.lock);
        if (current.target != NULL && now() - current.begun > STUCK_S) {
            fprintf(stderr, "target_probe: error: target %s (%s) did not answer within %d s: %s\n",
                    current.target->name, current.target->location, STUCK_S, current.step);
            _exit(3);
        }
        pthread_mutex_unlock(&current.lock);
    }
    return NULL;
}

static void start_watch(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, watch, NULL) != 0)
        fail("cannot start a thread", strerror(errno));
    pthread_detach(thread);
}

/* A target that failed is left out; the others are measured. */
static void give_up(struct target *target, long number, const char *step, const char *reason) {
    print_line("failed %ld %s: %s", number, step, reason);
    fprintf(stderr, "target_probe: error: target %s (%s): %s: %s\n", target->name, target->location, step,
            reason);
    if (target->descriptor >= 0)
        close(target->descriptor);
    target->descriptor = -1;
}

static long number(const char *text, long least, long most) {
    char *end;
    long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || value < least || value > most)
        fail("expected other numbers (see the source)", text);
    return value;
}

static char *next_field(char **rest) {
    char *field = *rest == NULL ? NULL : strsep(rest, "\t");
    return field == NULL ? NULL : strdup(field);
}

static struct targets read_list(const char *path) {
    struct targets targets = {0};
    FILE *list = fopen(path, "r");
    char *line = NULL;
    size_t room = 0;
    if (list == NULL)
        fail(path, strerror(errno));
    for (ssize_t length; (length = getline(&line, &room, list)) > 0;) {
        char *rest = line;
        if (line[length - 1] == '\n')
            line[length - 1] = '\0';
        struct target target = {next_field(&rest), next_field(&rest), next_field(&rest), 0, -1};
        if (target.file == NULL || target.name[0] == '\0' || targets.count == MAX_TARGETS)
            fail(path, "expected name, location and file of each target");
        targets.all = realloc(targets.all, (size_t)(targets.count + 1) * sizeof *targets.all);
        if (targets.all == NULL)
            fail("out of memory", path);
        targets.all[targets.count++] = target;
    }
    free(line);
    fclose(list);
    if (targets.count == 0)
        fail(path, "it names no target");
    return targets;
}

/* The targets of this day; `groups` days have all of them. Neighbours in the list, which are often on one
 * server, are in different groups. */
static struct targets choose_group(struct targets all_targets, long groups, long group) {
    struct targets members = {calloc((size_t)all_targets.count, sizeof *all_targets.all), 0};
    if (members.all == NULL)
        fail("out of memory", "targets");
    for (long i = group; i < all_targets.count; i += groups)
        members.all[members.count++] = all_targets.all[i];
    return members;
}

static void open_file(struct target *target, long number) {
    if (target->file[0] == '\0') {
        give_up(target, number, "layout", "no file could be made on it");
        return;
    }
    begin_step(target, "open");
    target->descriptor = open(target->file, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (target->descriptor < 0)
        give_up(target, number, "open", strerror(errno));
    else
        unlink(target->file);
}

static void fill(unsigned char *data, long bytes, uint64_t seed) {
    /* xorshift64*: what a file system cannot compress. */
    uint64_t state = seed * 0x9e3779b97f4a7c15 + 1;
    for (long at = 0; at < bytes; at += 8) {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        uint64_t word = state * 0x2545f4914f6cdd1d;
        memcpy(data + at, &word, (size_t)(bytes - at < 8 ? bytes - at : 8));
    }
}

/* Writes or reads up to `bytes` in chunks until the time is over; a write ends with fsync. False: errno says
 * why. */
static bool move(int descriptor, bool writes, unsigned char *data, long bytes, double limit_s,
                 struct transfer *done) {
    double begun = now();
    done->bytes = 0;
    do {
        size_t size = (size_t)(bytes - done->bytes < CHUNK ? bytes - done->bytes : CHUNK);
        ssize_t moved = writes ? pwrite(descriptor, data + done->bytes, size, done->bytes)
                               : pread(descriptor, data + done->bytes, size, done->bytes);
        if (moved < 0 && errno == EINTR)
            continue;
        if (moved <= 0) {
            errno = moved == 0 ? EIO : errno;
            return false;
        }
        done->bytes += moved;
    } while (done->bytes < bytes && now() - begun < limit_s);
    if (writes && fsync(descriptor) != 0)
        return false;
    done->seconds = now() - begun;
    return true;
}

/* Drops a file from the page cache; returns whether (nearly) nothing of it remains. */
static bool drop(int descriptor, long bytes) {
    long page = sysconf(_SC_PAGESIZE), pages = (bytes + page - 1) / page, resident = 0;
    unsigned char *in_memory = malloc((size_t)pages);
    posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
    void *map = mmap(NULL, (size_t)bytes, PROT_READ, MAP_SHARED, descriptor, 0);
    /* Files of some clients (FUSE with direct_io) cannot be mapped, because they are never in the page cache.
     */
    if (map == MAP_FAILED && errno == ENODEV) {
        free(in_memory);
        return true;
    }
    bool is_known = in_memory != NULL && map != MAP_FAILED && mincore(map, (size_t)bytes, in_memory) == 0;
    for (long i = 0; is_known && i < pages; i++)
        resident += in_memory[i] & 1;
    if (map != MAP_FAILED)
        munmap(map, (size_t)bytes);
    free(in_memory);
    return is_known && (double)resident <= MOSTLY_DROPPED * (double)pages;
}

/* Writes and reads the file of a target once; whether its data were dropped from the page cache between. */
static bool probe(struct target *target, long number, long repetition, const struct settings *settings,
                  unsigned char *data) {
    struct transfer written, read;
    fill(data, target->bytes, (uint64_t)(number * MAX_REPETITIONS + repetition));
    begin_step(target, "write");
    if (!move(target->descriptor, true, data, target->bytes, settings->limit_s, &written)) {
        give_up(target, number, "write", strerror(errno));
        return true;
    }
    /* The time of an fsync is known afterwards only: the next write is shorter. */
    if (written.seconds > settings->limit_s) {
        target->bytes = (long)((double)written.bytes * settings->limit_s / written.seconds);
        target->bytes = target->bytes < CHUNK ? CHUNK : target->bytes;
        target->bytes = target->bytes > settings->bytes ? settings->bytes : target->bytes;
    }
    uint32_t expected = crc_of(data, (size_t)written.bytes);
    begin_step(target, "read");
    bool is_dropped = drop(target->descriptor, written.bytes);
    memset(data, 0, (size_t)written.bytes);
    if (!move(target->descriptor, false, data, written.bytes, settings->limit_s, &read)) {
        give_up(target, number, "read", strerror(errno));
        return true;
    }
    /* A slow read may have moved a part: the rest is compared, too, and not timed. */
    struct transfer rest = {0, 0};
    if (read.bytes < written.bytes) {
        /* A number of seconds that no read takes: the watch ends it. */
        if (!move(target->descriptor, false, data, written.bytes, 2 * STUCK_S, &rest)) {
            give_up(target, number, "read", strerror(errno));
            return true;
        }
    }
    if (crc_of(data, (size_t)written.bytes) != expected) {
        give_up(target, number, "read", "other data than were written");
        return true;
    }
    print_line("row %ld %ld write %ld %.6g", repetition, number, written.bytes, written.seconds);
    print_line("row %ld %ld read %ld %.6g", repetition, number, read.bytes, read.seconds);
    /* Only the data of one target are there at a time. */
    begin_step(target, "truncate");
    if (ftruncate(target->descriptor, 0) != 0)
        give_up(target, number, "truncate", strerror(errno));
    return is_dropped;
}

static void allow_many_files(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("target_probe %d\n", FORMAT);
        return 0;
    }
    if (argc < 2 || argc > 7)
        fail("expected", "LIST [BYTES [REPETITIONS [SECONDS [MOST [DAY]]]]]");
    struct settings settings = {
        .bytes = argc > 2 ? number(argv[2], 1, MAX_BYTES) : 8L << 20,
        .repetitions = argc > 3 ? number(argv[3], 1, MAX_REPETITIONS) : 3,
        .most = argc > 5 ? number(argv[5], 1, MAX_TARGETS) : MAX_TARGETS,
        .day = argc > 6 ? number(argv[6], 0, MAX_BYTES) : (long)(time(NULL) / 86400),
    };
    double seconds = argc > 4 ? (double)number(argv[4], 1, 3600) : 2;
    /* A write and a read in each repetition. */
    settings.limit_s = seconds / (2 * (double)settings.repetitions);
    char host[256] = "";
    gethostname(host, sizeof host - 1);

    struct targets all_targets = read_list(argv[1]);
    long groups = (all_targets.count + settings.most - 1) / settings.most, group = settings.day % groups;
    struct targets targets = choose_group(all_targets, groups, group);
    print_line("target_probe %d", FORMAT);
    print_line("host %s", host[0] != '\0' ? host : "unknown");
    print_line("size %ld bytes", settings.bytes);
    print_line("repetitions %ld", settings.repetitions);
    print_line("known %ld", all_targets.count);
    print_line("group %ld of %ld", group + 1, groups);
    print_line("targets %ld", targets.count);
    for (long i = 0; i < targets.count; i++)
        print_line("target %ld %s @ %s", i, targets.all[i].name, targets.all[i].location);

    allow_many_files();
    start_watch();
    unsigned char *data = malloc((size_t)settings.bytes);
    if (data == NULL)
        fail("out of memory on", host);
    for (long i = 0; i < targets.count; i++) {
        targets.all[i].bytes = settings.bytes;
        open_file(&targets.all[i], i);
    }
    /* Each repetition has all targets in the same order: a disturbance that is shorter than a repetition is
       in one repetition of a target. */
    bool is_dropped = true;
    for (long repetition = 1; repetition <= settings.repetitions; repetition++) {
        for (long i = 0; i < targets.count; i++)
            if (targets.all[i].descriptor >= 0)
                is_dropped &= probe(&targets.all[i], i, repetition, &settings, data);
        fflush(stdout);
    }
    print_line("cache %s", is_dropped ? "drop" : "keep");
    long failed = 0;
    for (long i = 0; i < targets.count; i++) {
        begin_step(&targets.all[i], "close");
        if (targets.all[i].descriptor < 0)
            failed++;
        else
            close(targets.all[i].descriptor);
    }
    begin_step(NULL, "end");
    printf("end %ld %08x\n", targets.count - failed, (unsigned)~checksum);
    free(data);
    return failed == 0 ? 0 : 1;
}
