/* For tests with more ranks than cores: MPICH over UCX polls without ever giving its core away, so that each
 * collective call waits for whole time slices. Preloaded, this yields after every poll that found nothing. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>

unsigned ucp_worker_progress(void *worker);

unsigned ucp_worker_progress(void *worker) {
    static unsigned (*progress)(void *);
    if (progress == NULL)
        *(void **)&progress = dlsym(RTLD_NEXT, "ucp_worker_progress");
    unsigned events = progress(worker);
    if (events == 0)
        sched_yield();
    return events;
}
