/* One commit of a journal or a stream: a write and a sync of its file, in one call, for a caller
 * that has released the GIL. */
#ifndef SHMQ_FILE_SYNCED_WRITE_H
#define SHMQ_FILE_SYNCED_WRITE_H

#include <stdint.h>
#include <sys/uio.h>

/* Writes the pieces one after the other from `offset` on, and syncs the file's data: 0, or an
 * errno, after which nothing is known about these bytes; ENOENT if the file has no name any more,
 * so that they are lost with it. Of many bytes, the kernel is advised to write the first ones while
 * the rest is copied. Uses up the array `pieces`. */
int shmq_write_synced(int file, struct iovec *pieces, int count, int64_t offset);

#endif
