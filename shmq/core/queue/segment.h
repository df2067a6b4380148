/* Making a segment, and deciding whether a segment may be trusted. */
#ifndef SHMQ_QUEUE_SEGMENT_H
#define SHMQ_QUEUE_SEGMENT_H

#include "queue/queue.h"

/* Computes the layout of a queue's segment from the options. */
void shmq_lay_out(const struct shmq_options *options, struct shmq_geometry *geo);

/* Points the handle's regions into the mapping at `base`. */
void shmq_bind(struct shmq_queue *q, void *base, int fd, const struct shmq_geometry *geo);

/* Makes an empty queue in a zeroed segment whose header has memory. The version, stored last, says
 * that it is ready. */
int shmq_format(struct shmq_queue *q, const struct shmq_options *options);

/* The same in two steps, so that the queue can be filled before other processes see it. */
int shmq_prepare(struct shmq_queue *q, const struct shmq_options *options);
void shmq_announce(struct shmq_queue *q);

/* Whether the `size` bytes at `base` are a segment that may be attached to: SHMQ_OK, NOT_READY,
 * INCOMPATIBLE, TRUNCATED or DAMAGED. `mapped` is how much of it is mapped; at least the header.
 * Sets `geo` if it is OK. */
int shmq_inspect(const void *base, uint64_t mapped, uint64_t size, struct shmq_geometry *geo);

/* The version in a header that shmq_inspect found INCOMPATIBLE. */
uint32_t shmq_version_of(const void *base);

#endif
