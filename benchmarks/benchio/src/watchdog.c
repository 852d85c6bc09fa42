#include "watchdog.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "fail.h"
#include "options.h"

/* Seconds after which an open that has not ended is looked at, and between two looks. */
#define LOOK_S 5

/* The only variable of the program that is not passed: a signal handler has no other way to its context. */
static struct {
    const struct context *context;
    const char *operation, *path;
    char seen[PATH_MAX]; /* beside `path`: made by a rank that could open it */
    double begun;
    bool opening;
} timed;

/* fail() is not safe in a handler, but the process ends anyway; should it hang as well, the second alarm ends
 * the process, and the launcher the others. */
static void end_in_handler(int number) {
    signal(number, SIG_DFL);
    alarm(10);
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, number);
    sigprocmask(SIG_UNBLOCK, &only, NULL);
}

/* errno of opening the file here, although another rank can; 0 if this rank can, or the file may not be made
 * yet. */
static int cannot_open(void) {
    int descriptor = open(timed.path, O_RDONLY | O_CLOEXEC);
    if (descriptor >= 0) {
        close(descriptor);
        mknod(timed.seen, S_IFREG | 0600, 0);
        return 0;
    }
    int reason = errno;
    return reason == ENOENT && access(timed.seen, F_OK) != 0 ? 0 : reason;
}

/* In a collective open of Open MPI's MPI-IO a rank that cannot open the file waits for the others for ever,
 * and they for it: each looks for itself whether it can. */
static void look_at_open(int number) {
    int reason = cannot_open();
    if (reason == 0)
        return;
    end_in_handler(number);
    fail(timed.context, EXIT_BROKEN, PLACE(timed.path, "opening"), "%s here, while another rank can open it",
         strerror(reason));
}

static void late(int number) {
    double left = (double)timed.context->options->timeout - (clock_now() - timed.begun);
    if (timed.opening && left > 0) {
        look_at_open(number);
        alarm(left < LOOK_S ? (unsigned)left + 1 : LOOK_S);
        return;
    }
    end_in_handler(number);
    fail(timed.context, EXIT_BROKEN, PLACE(timed.path, timed.operation),
         "not finished after %u s (--timeout)", (unsigned)timed.context->options->timeout);
}

void watchdog_start(const struct context *c, const char *operation, const char *path) {
    if (c->options->timeout == 0)
        return;
    timed.context = c;
    timed.operation = operation;
    timed.path = path;
    timed.begun = clock_now();
    snprintf(timed.seen, sizeof timed.seen, "%.*s.seen", PATH_MAX - 8, path);
    /* A look during a long open must not interrupt it. */
    struct sigaction action = {.sa_handler = late, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    alarm((unsigned)c->options->timeout);
}

void watchdog_opening(const struct context *c) {
    timed.opening = c->options->timeout > LOOK_S;
    if (timed.opening)
        alarm(LOOK_S);
}

void watchdog_opened(const struct context *c) {
    if (timed.opening)
        alarm((unsigned)c->options->timeout);
    timed.opening = false;
}

void watchdog_stop(void) {
    alarm(0);
}
