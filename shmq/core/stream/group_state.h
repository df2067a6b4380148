/* A consumer group of one stream: its members, the owner of each partition, and its committed
 * offset. Each group has a file, so the stream's own segment does not limit the number of groups,
 * and a damaged group affects no other.
 *
 *   header | members | partitions | held
 *
 * Three truths, each one store: a member's id, a partition's owner, a partition's committed offset.
 * The plan (the owner that each partition is assigned) is derived from them by a rule in Python. It
 * belongs to the epoch that `planned` names, and is void once `epoch` is past that. A partition
 * goes to its planned owner only after its owner has released it or has left the group, so it never
 * has two owners.
 *
 * In a shared group no partition has an owner: `next` is the next offset to lease, and `held` has
 * the leased records that are not settled.
 *
 * Every function from shmq_group_state_join on is called with the lock held, unless stated
 * otherwise. */
#pragma once

#include "base/status.h"
#include "stream/layout.h"

#define SHMQ_GROUP_STATE_MAGIC 0x53484d47u /* "SHMG" */
#define SHMQ_GROUP_STATE_VERSION 1u
#define SHMQ_MAX_MEMBERS 512u
#define SHMQ_MAX_GROUP_PARTITIONS 1024u
#define SHMQ_MAX_HELD (1u << 20)
#define SHMQ_MEMBER_NAME 32
#define SHMQ_NO_OFFSET UINT64_MAX

enum shmq_assignment { SHMQ_RANGE = 0, SHMQ_ROUND_ROBIN = 1, SHMQ_STICKY = 2, SHMQ_SHARED = 3 };

/* Fixed before the group is published. Times in ns. */
struct shmq_group_state_options {
    uint64_t group_id;  /* 62 random bits and a 1                                       */
    uint64_t stream_id; /* a new stream of an old name keeps none of its groups         */
    int64_t created_at; /* since 1970                                                   */
    int64_t session;    /* a member silent for longer is removed; 0: no limit           */
    int64_t lease;      /* SHARED: the duration of a lease                              */
    uint32_t assignment;
    uint32_t latest;    /* 1: a partition without a committed offset begins at its end  */
    uint32_t max_deliveries; /* SHARED; 0: no limit                                     */
    uint32_t held;           /* SHARED: the most unsettled records                      */
    char dead_letter[SHMQ_NAME_BYTES]; /* SHARED: a queue, or ""                        */
};

struct shmq_group_state_header {
    _Atomic uint64_t published; /* magic << 32 | version; stored last                   */
    struct shmq_group_state_options options;
    uint64_t bytes;             /* of the file, as computed from the options            */
    uint32_t crc;               /* CRC-32C of options and bytes                         */
    _Atomic uint32_t state;     /* SHMQ_OPEN, SHMQ_GONE                                 */
    _Alignas(64) struct shmq_mutex lock;
    uint64_t last_member;       /* the last id assigned; truth                          */
    uint64_t serial;            /* SHARED: of the newest receipt; truth                 */
    uint32_t partitions;        /* of the stream, as far as the members know            */
    uint32_t reserved;
    _Alignas(64) _Atomic uint64_t epoch; /* raised when members or partitions change    */
    _Atomic uint64_t planned;   /* the epoch of the plan                                */
    _Atomic uint64_t change;    /* raised when an owner, the plan or the epoch changes    */
    _Atomic int64_t looked_at;  /* when a member last checked which members are alive   */
    uint64_t rebalances;        /* plans made                                           */
    uint64_t evicted;           /* members that died or timed out                       */
    uint64_t recoveries;
    uint64_t acked;             /* SHARED: records settled as done,                     */
    uint64_t dropped;           /*   given up without a dead-letter queue,              */
    uint64_t dead_lettered;     /*   and moved to one                                   */
    uint64_t skipped;           /*   or overwritten before they were leased             */
    _Alignas(64) int64_t next_due; /* SHARED: nothing held is due before; may be early  */
    uint32_t live;              /*   entries in use; derived                            */
    uint32_t hint;              /*   no entry below is free; derived                    */
};

struct shmq_member {
    _Atomic uint64_t id; /* 0: free; the commit point                                   */
    uint64_t process;    /* its number in the namespace                                 */
    _Atomic int64_t deadline; /* end of its session, monotonic ns                       */
    int64_t joined_at;   /* ns since 1970                                               */
    char name[SHMQ_MEMBER_NAME];
};

struct shmq_group_partition {
    _Atomic uint64_t owner;     /* a member's id; 0: none; truth                        */
    _Atomic uint64_t plan;      /* the planned owner; derived                           */
    _Atomic uint64_t committed; /* the next offset to process; SHMQ_NO_OFFSET: none; truth */
    _Atomic int64_t committed_at; /* ns since 1970                                      */
    _Atomic uint64_t next;      /* SHARED: the next offset to lease; truth              */
    uint64_t moves;             /* how often it got a new owner                         */
    uint64_t reserved[2];
};

struct shmq_held {
    _Atomic uint64_t word; /* serial << 24 | deliveries << 8 | state; the commit point  */
    uint64_t offset;
    uint64_t owner;        /* a member's id                                             */
    int64_t deadline;      /* LEASED: its end; RETURNED: not before; monotonic ns       */
    uint32_t partition;
    uint32_t reserved[7];
};

_Static_assert(sizeof(struct shmq_group_state_options) == 160, "options of a group");
_Static_assert(sizeof(struct shmq_group_state_header) <= SHMQ_PAGE, "header of a group");
_Static_assert(sizeof(struct shmq_member) == 64, "member");
_Static_assert(sizeof(struct shmq_group_partition) == 64, "a partition of a group");
_Static_assert(sizeof(struct shmq_held) == 64, "held record");

/* A process's view of a group's file. */
struct shmq_group_state {
    struct shmq_group_state_header *h;
    struct shmq_member *members;
    struct shmq_group_partition *partitions;
    struct shmq_held *held;
    const struct shmq_process *self; /* this process in the namespace, for the lock */
    uint32_t capacity; /* entries of `held` */
};

/* The size of the file of a group with these options; 0 if they are out of range. */
uint64_t shmq_group_state_bytes(const struct shmq_group_state_options *options);

/* Makes an empty group in `bytes` zeroed bytes that have memory: SHMQ_OK, DAMAGED (the size or an
 * option is wrong). The version, stored last, says that it is ready. */
int shmq_group_state_format(void *base, uint64_t bytes,
                            const struct shmq_group_state_options *options);

/* Checks and opens the group in the `size` bytes at `base`: SHMQ_OK, NOT_READY, INCOMPATIBLE,
 * TRUNCATED, DAMAGED. `self` must outlive `r`. */
int shmq_group_state_open(struct shmq_group_state *r, void *base, uint64_t size,
                          const struct shmq_process *self);

/* Takes the lock, waiting up to `ns` in the kernel, and repairs what a dead holder left: SHMQ_OK,
 * BUSY, DELETED (not held then), DAMAGED, UNREGISTERED. */
int shmq_group_state_lock(struct shmq_group_state *r, int64_t ns);
void shmq_group_state_unlock(struct shmq_group_state *r);

/* The number of the process that holds the lock; 0 if none. */
uint64_t shmq_group_state_holder(const struct shmq_group_state *r);

/* Deletes the group: later calls get SHMQ_DELETED. */
void shmq_group_state_close(struct shmq_group_state *r);

/* Sets how many partitions the stream has; the number never decreases. */
int shmq_group_state_widen(struct shmq_group_state *r, uint32_t partitions);

/* Adds a member, and stores its number in `*at` and its id in `*id`: SHMQ_OK, or SHMQ_CROWDED.
 * `name` ends with 0 and is shorter than SHMQ_MEMBER_NAME. */
int shmq_group_state_join(struct shmq_group_state *r, uint64_t process, const char *name,
                          int64_t now, uint32_t *at, uint64_t *id);

/* Removes member `id`, and releases its partitions and leases: SHMQ_OK, or STALE if it is not a
 * member. `evicted`: not of its own accord. */
int shmq_group_state_leave(struct shmq_group_state *r, uint64_t id, bool evicted, int64_t now);

/* Without the lock: a heartbeat of the member at `at`. SHMQ_OK, or STALE if that is not `id`. */
int shmq_group_state_beat(struct shmq_group_state *r, uint32_t at, uint64_t id, int64_t now);

/* Without the lock: sleeps until something changes in the group, of which `change` was seen, or the
 * stream's wakeup is raised; at most `ns`: as shmq_stream_sleep. */
int shmq_group_state_sleep(const struct shmq_group_state *r, uint64_t change,
                           struct shmq_stream *stream, uint32_t wakeup, int64_t ns);

/* Without the lock: whether the caller must check which members live; one caller in every `ns`. */
bool shmq_group_state_watch(struct shmq_group_state *r, int64_t ns, int64_t now);

/* A member whose session has expired at `now`; 0 if none. */
uint64_t shmq_group_state_silent(const struct shmq_group_state *r, int64_t now);

/* Sets the planned owner of each of `n` partitions, if the plan was computed in `epoch` and that is
 * still the epoch: SHMQ_OK, or STALE. */
int shmq_group_state_plan(struct shmq_group_state *r, uint64_t epoch, const uint64_t *owners,
                          uint32_t n);

/* Takes the partition for `id`: SHMQ_OK, BUSY while another member has it, STALE if it is not
 * assigned to `id`. */
int shmq_group_partition_claim(struct shmq_group_state *r, uint32_t partition, uint64_t id);

/* Releases the partition: SHMQ_OK, or STALE if `id` does not have it. */
int shmq_group_partition_release(struct shmq_group_state *r, uint32_t partition, uint64_t id);

/* Commits all records below `offset`: SHMQ_OK, or STALE if `id` does not own the partition. An `id`
 * of 0 may commit if the partition has no owner. */
int shmq_group_partition_commit(struct shmq_group_state *r, uint32_t partition, uint64_t id,
                                uint64_t offset, int64_t wall);

/* ---- shared_group.c ---- */

/* Records of a stream that a group shares: each is leased to one member at a time, and settled
 * individually. Every record below a partition's `next` that is not held is done. So a record that
 * cannot be settled occupies one entry, and blocks neither the records behind it nor the partition.
 *
 *            lease                   ack
 *   (next) --------> LEASED --------------------> done
 *                    |    ^
 *    nack, its end,  |    | lease_returned        take_dead      moved
 *    owner's death   v    |    at the limit,   DEAD ----> MOVING ------> done
 *                    RETURNED  or rejected --> (to the dead letters; without such
 *                                               a queue it is dropped, and counted)
 *
 * A transition is one store of the entry's word; `next` follows it, so that a death between the two
 * leaves a record that is held, never one that is lost. Only a lease that was handed to the
 * application counts as a delivery.
 *
 * All functions are called with the group's lock held. Times are monotonic, in ns. */

enum shmq_held_state {
    SHMQ_HELD_FREE = 0,
    SHMQ_HELD_LEASED = 1,   /* leased by its owner until `deadline`                       */
    SHMQ_HELD_RETURNED = 2,   /* to be leased again from `deadline` on                      */
    SHMQ_HELD_DEAD = 3,  /* waits to be moved to the dead letters                      */
    SHMQ_HELD_MOVING = 4, /* its owner moves it                                         */
};

#define SHMQ_HELD_STATE 0xFull
#define SHMQ_HELD_HANDED 0x10ull /* the application has received this lease             */
#define SHMQ_HELD_DELIVERIES_SHIFT 8

/* The description of a leased record for its member. */
struct shmq_shared_lease {
    uint64_t receipt; /* serial << 24 | entry                                           */
    uint64_t offset;
    uint32_t partition;
    uint32_t deliveries; /* before this one                                             */
};

/* Sets the first record of the partition to lease, unless it is set already. */
void shmq_shared_group_begin(struct shmq_group_state *r, uint32_t partition, uint64_t offset);

/* Leases to `id` up to `limit` new records of the partition, between `earliest` and `latest` (the
 * next offset to come). Records before `earliest` are gone, and counted as skipped. SHMQ_OK with
 * `*count`, or FULL if `held` is full and nothing was leased. */
int shmq_shared_group_lease(struct shmq_group_state *r, uint64_t id, uint32_t partition,
                            uint64_t earliest, uint64_t latest, uint32_t limit, int64_t now,
                            struct shmq_shared_lease *leases, uint32_t *count);

/* Leases to `id` up to `limit` records that were returned; returns how many. */
uint32_t shmq_shared_group_lease_returned(struct shmq_group_state *r, uint64_t id, uint32_t limit,
                                          int64_t now, struct shmq_shared_lease *leases);

/* Counts the delivery of the record to the application: SHMQ_OK, or STALE if the lease is over. */
int shmq_shared_group_hand(struct shmq_group_state *r, uint64_t receipt, int64_t now);

/* Settles the record as done: SHMQ_OK, or STALE. */
int shmq_shared_group_ack(struct shmq_group_state *r, uint64_t receipt, int64_t now);

/* Returns the record in `delay` ns, or gives it up at the limit: SHMQ_OK, or STALE. */
int shmq_shared_group_nack(struct shmq_group_state *r, uint64_t receipt, int64_t delay,
                           int64_t now);

/* Returns the record in `delay` ns as if it had not been handed to the application: SHMQ_OK, or
 * STALE. */
int shmq_shared_group_return(struct shmq_group_state *r, uint64_t receipt, int64_t delay,
                             int64_t now);

/* Gives the record up, whatever the limit: SHMQ_OK, or STALE. */
int shmq_shared_group_reject(struct shmq_group_state *r, uint64_t receipt, int64_t now);

/* Extends the lease to `ns` from now; 0: to the group's lease. SHMQ_OK, or STALE. */
int shmq_shared_group_extend(struct shmq_group_state *r, uint64_t receipt, int64_t ns, int64_t now);

/* Gives `id` a DEAD record to move: SHMQ_OK, or EMPTY. */
int shmq_shared_group_take_dead(struct shmq_group_state *r, uint64_t id, int64_t now,
                                struct shmq_shared_lease *leases);

/* Settles a moved record: it is in the dead-letter queue, or (not `there`) dropped, because
 * no such queue exists: SHMQ_OK, or STALE. */
int shmq_shared_group_moved(struct shmq_group_state *r, uint64_t receipt, int there);

/* Settles a record that the stream no longer has, leased or moving: SHMQ_OK, or STALE. */
int shmq_shared_group_lost(struct shmq_group_state *r, uint64_t receipt);

/* Member `id` is gone: its records are returned at once. */
void shmq_shared_group_orphan(struct shmq_group_state *r, uint64_t id, int64_t now);

/* When the next held record is due, INT64_MAX if none is; may be early. */
int64_t shmq_shared_group_due(const struct shmq_group_state *r);

/* The first unsettled offset of each of the group's partitions; SHMQ_NO_OFFSET: none was leased
 * yet. */
void shmq_shared_group_lows(const struct shmq_group_state *r, uint64_t *lows);

/* Recounts after a death. */
void shmq_shared_group_recover(struct shmq_group_state *r);
