#include "watchdog.h"

#include <signal.h>
#include <unistd.h>

#include "fail.h"
#include "options.h"

/* The only variable of the program that is not passed: a signal handler has no other way to its context. */
static struct {
    const struct context *context;
    const char *operation, *path;
} watched;

/* What fail() does is not safe in a handler, but the process has nothing to lose; should it hang in turn, the
 * second alarm ends the process, and the launcher the others. */
static void late(int number) {
    signal(number, SIG_DFL);
    alarm(10);
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, number);
    sigprocmask(SIG_UNBLOCK, &only, NULL);
    fail(watched.context, EXIT_BROKEN, PLACE(watched.path, watched.operation),
         "not finished after %u s (--timeout)", (unsigned)watched.context->options->timeout);
}

void watchdog_start(const struct context *c, const char *operation, const char *path) {
    if (c->options->timeout == 0)
        return;
    watched.context = c;
    watched.operation = operation;
    watched.path = path;
    struct sigaction action = {.sa_handler = late};
    sigaction(SIGALRM, &action, NULL);
    alarm((unsigned)c->options->timeout);
}

void watchdog_stop(void) {
    alarm(0);
}
