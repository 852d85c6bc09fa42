/* The page cache between a write and a read. */
#ifndef BENCHIO_CACHE_H
#define BENCHIO_CACHE_H

/* Ask this node to forget the pages of a file: fsync, then POSIX_FADV_DONTNEED. Returns errno, 0 if fine. */
int cache_drop(const char *path);
/* The share of the file's pages that this node holds in memory, 0 to 1; -1: unknown. */
double cache_resident(const char *path);

#endif
