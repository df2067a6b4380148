/* Making a segment, and deciding whether a segment may be trusted. */
#pragma once

#include "queue/queue.h"

/* Computes the layout of a queue's segment from the options. */
void shmq_lay_out(const struct shmq_options *options, struct shmq_geometry *geo);

/* Points the handle's regions into the mapping at `base`; `self` must outlive the handle. */
void shmq_bind(struct shmq_queue *q, void *base, int fd, const struct shmq_geometry *geo,
               const struct shmq_process *self);

/* Makes an empty queue in a zeroed segment whose header has memory; it may be filled before other
 * processes see it. shmq_announce stores the version, last, which says that it is ready. */
void shmq_prepare(struct shmq_queue *q, const struct shmq_options *options);
void shmq_announce(struct shmq_queue *q);

/* Copies the policies that apply now, and how many alterations led to them; false if they are damaged.
 * Needs no lock. */
bool shmq_read_policies(const struct shmq_header *h, struct shmq_policies *policies,
                        uint32_t *alterations);

/* The checksum of the policies, which is their last member. */
uint32_t shmq_policies_checksum(const struct shmq_policies *policies);

/* The bytes that the segment can take at its size: its file is longer, see struct shmq_geometry. */
uint64_t shmq_most_bytes(const struct shmq_options *options, const struct shmq_policies *policies);

/* Whether the `size` bytes at `base` are a segment that may be attached to: SHMQ_OK, NOT_READY,
 * INCOMPATIBLE, TRUNCATED or DAMAGED. `mapped` is how much of it is mapped; at least the header.
 * Sets `geo` if it is OK. */
int shmq_inspect(const void *base, uint64_t mapped, uint64_t size, struct shmq_geometry *geo);

/* The version in a header that shmq_inspect found INCOMPATIBLE. */
uint32_t shmq_version_of(const void *base);

/* ---- backing.c ---- */

/* Allocating memory for the segment, in steps, before it is touched: on a full /dev/shm a store
 * to a page that was never allocated is a SIGBUS, while a refused allocation is an error. All
 * hold the lock; SHMQ_NO_SPACE sets q->refused_bytes. */

/* Ensures: bytes [offset, offset + size) of the segment have memory. */
int shmq_back(struct shmq_queue *q, uint64_t offset, uint64_t size);

/* Ensures: slots below `count`, with their heap entries, have memory. */
int shmq_back_slots(struct shmq_queue *q, uint32_t count);

/* Ensures: units below `count` of the arena, with their bits, have memory. */
int shmq_back_units(struct shmq_queue *q, uint32_t count);

/* Ensures: there are `count` buckets of groups, 2^n and not fewer than now; new ones are empty. */
int shmq_back_buckets(struct shmq_queue *q, uint32_t count);

/* Ensures: group records below `count`, and buckets, have memory. */
int shmq_back_groups(struct shmq_queue *q, uint32_t count);

/* Ensures: the entries for amended properties of slots below `count` have memory. */
int shmq_back_amended(struct shmq_queue *q, uint32_t count);

/* Ensures: attachments below `count` have memory. */
int shmq_back_attachments(struct shmq_queue *q, uint32_t count);

/* Returns the memory above what is in use to the system; `units`: shmq_arena_top. */
void shmq_give_back(struct shmq_queue *q, uint32_t units);

/* ---- attachments.c: processes, and reclaiming what a dead one held; all hold the lock ---- */

/* Attaches the handle. SHMQ_CROWDED, SHMQ_NO_SPACE. */
int shmq_attach(struct shmq_queue *q, uint64_t process, uint32_t pid, const char *name);

/* Reclaims what attachment `at` of process `process` held: its leases return to the queue, its
 * unfinished messages are dropped, its views no longer pin anything. Frees the entry. Does nothing
 * if the entry belongs to another process by now. */
void shmq_reclaim(struct shmq_queue *q, uint32_t at, uint64_t process, int64_t now);

/* The same for a handle that closes while it has views: those keep their pins and the entry until
 * the last view is gone. */
void shmq_retire(struct shmq_queue *q, int64_t now);

/* The handle is a consumer from now on, until it is reclaimed or retired. */
void shmq_consume(struct shmq_queue *q);

/* Its time without a consumer starts again. */
void shmq_renew(struct shmq_queue *q, int64_t now);

/* Whether the queue has no consumer, and ends for that: by `auto_delete` if it has had one, by
 * `expires` after that time. Consumers that died count until they are reclaimed. Without the lock
 * it is only a hint. */
bool shmq_is_unused(const struct shmq_queue *q, int64_t now);
