/* Whether the nodes of a run see the same files, before anything is measured. */
#ifndef BENCHIO_VISIBILITY_H
#define BENCHIO_VISIBILITY_H

#include "placement.h"

/* Collective: each node makes an empty file in the directory of this run, and looks for that of the next
 * node. Fails, with the file system and its mount options, where it does not appear within seconds: the
 * directory is not shared, or the client remembers old entries for too long. With --existing, which makes
 * nothing, each node looks for the directory. */
void visibility_check(const struct context *context, const struct placement *placement);

/* Size of a file in bytes as its server has it, where the file system lets a client ask; 0 if it is not
 * there. */
uint64_t visible_size(const char *path);
/* Waits until this node sees that a file has at least `bytes`, and fails if it does not within seconds: a
 * client that remembers an old size reads nothing behind it. */
void visible_size_wait(const struct context *context, const char *path, uint64_t bytes);

#endif
