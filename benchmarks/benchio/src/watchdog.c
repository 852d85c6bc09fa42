#include "watchdog.h"

#include <signal.h>
#include <unistd.h>

#include "fail.h"
#include "options.h"

/* The only variable of the program that is not passed: a signal handler has no other way to its context. */
static struct {
    const struct context *context;
    const char *operation, *path;
} timed;

/* What fail() does is not safe in a handler, but the process ends anyway; should it hang as well, the second
 * alarm ends the process, and the launcher the others. */
static void late(int number) {
    signal(number, SIG_DFL);
    alarm(10);
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, number);
    sigprocmask(SIG_UNBLOCK, &only, NULL);
    fail(timed.context, EXIT_BROKEN, PLACE(timed.path, timed.operation),
         "not finished after %u s (--timeout)", (unsigned)timed.context->options->timeout);
}

void watchdog_start(const struct context *c, const char *operation, const char *path) {
    if (c->options->timeout == 0)
        return;
    timed.context = c;
    timed.operation = operation;
    timed.path = path;
    struct sigaction action = {.sa_handler = late};
    sigaction(SIGALRM, &action, NULL);
    alarm((unsigned)c->options->timeout);
}

void watchdog_stop(void) {
    alarm(0);
}
