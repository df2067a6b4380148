/* A group of consumers of one stream: its members, the owner of each partition, and how
 * far each partition is done. One file a group, so that groups come and go without a limit that
 * the stream's own segment would set, and a damaged one is nobody else's concern.
 *
 *   header | members | partitions | held
 *
 * Three truths, each one store: a member's id, a partition's owner, a partition's committed offset.
 * The plan (the owner that each partition is to have) is derived from them by a rule in Python: it
 * is of the epoch that `planned` names, and worth nothing once `epoch` is past that. A partition
 * goes to its planned owner only after its owner has left it, or has left the group, so it
 * never has two.
 *
 * In a group that shares, nobody owns a partition: `next` says what was handed out, and
 * `held` has whatever of that is not settled (shared_group.h).
 *
 * Every function from shmq_group_state_join on is called with the lock held, unless it says
 * otherwise. */
#ifndef SHMQ_STREAM_GROUP_STATE_H
#define SHMQ_STREAM_GROUP_STATE_H

#include "queue/layout.h"
#include "base/status.h"

#define SHMQ_GROUP_STATE_MAGIC 0x53484d47u /* "SHMG" */
#define SHMQ_GROUP_STATE_VERSION 1u
#define SHMQ_MAX_MEMBERS 512u
#define SHMQ_MAX_GROUP_PARTITIONS 1024u
#define SHMQ_MAX_HELD (1u << 20)
#define SHMQ_MEMBER_NAME 32
#define SHMQ_NO_OFFSET UINT64_MAX

enum shmq_assignment { SHMQ_RANGE = 0, SHMQ_ROUND_ROBIN = 1, SHMQ_STICKY = 2, SHMQ_SHARED = 3 };

/* Fixed before it is published. Times in ns. */
struct shmq_group_state_options {
    uint64_t group_id;  /* 62 random bits and a 1                                       */
    uint64_t stream_id; /* a new stream of an old name has none of its groups           */
    int64_t created_at; /* since 1970                                                   */
    int64_t session;    /* a member that is silent for longer is out; 0: no limit       */
    int64_t lease;      /* SHARED: how long a record is somebody's                      */
    uint32_t assignment;
    uint32_t latest;    /* 1: a partition without a committed offset begins at its end  */
    uint32_t max_deliveries; /* SHARED; 0: no limit                                     */
    uint32_t held;           /* SHARED: records that may be unsettled at a time         */
    char dead_letter[SHMQ_NAME_BYTES]; /* SHARED: a queue, or ""                        */
};

struct shmq_group_state_header {
    _Atomic uint64_t published; /* magic << 32 | version; stored last                   */
    struct shmq_group_state_options options;
    uint64_t bytes;             /* of the file, as computed from the options            */
    uint32_t crc;               /* CRC-32C of options and bytes                         */
    _Atomic uint32_t state;     /* SHMQ_OPEN, SHMQ_GONE                                 */
    _Alignas(64) union shmq_mutex lock;
    uint64_t last_member;       /* the last id given; truth                             */
    uint64_t serial;            /* SHARED: of the newest receipt; truth                 */
    uint32_t unsettled;         /* 1: a holder died; truth                              */
    uint32_t partitions;        /* of the stream, as members know it                    */
    _Alignas(64) _Atomic uint64_t epoch; /* raised when members or partitions change    */
    _Atomic uint64_t planned;   /* the epoch that the plan is of                        */
    _Atomic uint64_t change;    /* raised when a partition, the plan or the epoch changes */
    _Atomic int64_t looked_at;  /* when somebody last asked who is alive                */
    uint64_t rebalances;        /* plans made                                           */
    uint64_t evicted;           /* members that died or fell silent                     */
    uint64_t recoveries;
    uint64_t acked;             /* SHARED: records settled as done,                     */
    uint64_t dropped;           /*   given up without a dead-letter queue,              */
    uint64_t dead_lettered;     /*   and moved to one                                   */
    uint64_t skipped;           /*   or overwritten before anybody had them             */
    _Alignas(64) int64_t next_due; /* SHARED: nothing held is due before; may be early  */
    uint32_t live;              /*   entries in use; derived                            */
    uint32_t hint;              /*   no entry below is free; derived                    */
};

struct shmq_member {
    _Atomic uint64_t id; /* 0: free; the commit point                                   */
    uint64_t process;    /* its number in the namespace                                 */
    _Atomic int64_t deadline; /* when it is silent for too long, monotonic ns           */
    int64_t joined_at;   /* ns since 1970                                               */
    char name[SHMQ_MEMBER_NAME];
};

struct shmq_group_partition {
    _Atomic uint64_t owner;     /* a member's id; 0: nobody's; truth                    */
    _Atomic uint64_t plan;      /* the planned owner; derived                           */
    _Atomic uint64_t committed; /* the next offset to read; SHMQ_NO_OFFSET: none; truth */
    _Atomic int64_t committed_at; /* ns since 1970                                      */
    _Atomic uint64_t next;      /* SHARED: the next offset that nobody has had; truth   */
    uint64_t moves;             /* how often it got an owner                            */
    uint64_t reserved[2];
};

struct shmq_held {
    _Atomic uint64_t word; /* serial << 24 | deliveries << 8 | state; the commit point  */
    uint64_t offset;
    uint64_t owner;        /* a member's id                                             */
    int64_t deadline;      /* LENT: when that ends; BACK: not before; monotonic ns      */
    uint32_t partition;
    uint32_t reserved[7];
};

_Static_assert(sizeof(struct shmq_group_state_options) == 160, "options of a group");
_Static_assert(sizeof(struct shmq_group_state_header) <= SHMQ_PAGE, "header of a group");
_Static_assert(sizeof(struct shmq_member) == 64, "member");
_Static_assert(sizeof(struct shmq_group_partition) == 64, "a partition of a group");
_Static_assert(sizeof(struct shmq_held) == 64, "held record");

/* A process's view of one group's file. */
struct shmq_group_state {
    struct shmq_group_state_header *h;
    struct shmq_member *members;
    struct shmq_group_partition *partitions;
    struct shmq_held *held;
    uint32_t capacity; /* entries of `held` */
};

/* The size of the file of a group with these options; 0 if they are out of range. */
uint64_t shmq_group_state_bytes(const struct shmq_group_state_options *options);

/* Makes an empty group of `bytes` zeroed bytes that have memory: SHMQ_OK, DAMAGED (the size
 * or an option is wrong). The version, stored last, says "ready". */
int shmq_group_state_format(void *base, uint64_t bytes,
                            const struct shmq_group_state_options *options);

/* Opens the group in the `size` bytes at `base`, once all is checked: SHMQ_OK, NOT_READY,
 * INCOMPATIBLE, TRUNCATED, DAMAGED. */
int shmq_group_state_open(struct shmq_group_state *r, void *base, uint64_t size);

/* Takes the lock, waiting up to `ns` in the kernel, and puts right what a dead holder left:
 * SHMQ_OK, BUSY, DELETED (not held then), DAMAGED. */
int shmq_group_state_lock(struct shmq_group_state *r, int64_t ns);
void shmq_group_state_unlock(struct shmq_group_state *r);

/* The thread that keeps others from it; 0: none. */
uint32_t shmq_group_state_holder(const struct shmq_group_state *r);

/* The group is gone: the next caller gets SHMQ_DELETED. */
void shmq_group_state_close(struct shmq_group_state *r);

/* Notes that the stream has that many partitions; never fewer than before. */
int shmq_group_state_widen(struct shmq_group_state *r, uint32_t partitions);

/* One more member, whose number is stored to `*at` and whose id to `*id`: SHMQ_OK, or
 * SHMQ_CROWDED. `name` ends with 0 and is shorter than SHMQ_MEMBER_NAME. */
int shmq_group_state_join(struct shmq_group_state *r, uint64_t process, const char *name,
                          int64_t now, uint32_t *at, uint64_t *id);

/* Member `id` goes, and leaves its partitions and what it holds: SHMQ_OK, or STALE if it is no
 * member. `evicted`: not by its own will. */
int shmq_group_state_leave(struct shmq_group_state *r, uint64_t id, bool evicted, int64_t now);

/* Without the lock: the member at `at` is heard of. SHMQ_OK, or STALE if that is not `id`. */
int shmq_group_state_beat(struct shmq_group_state *r, uint32_t at, uint64_t id, int64_t now);

/* Without the lock: whether the caller is to ask now who is alive; one of all, once in `ns`. */
bool shmq_group_state_watch(struct shmq_group_state *r, int64_t ns, int64_t now);

/* The member that has been silent for too long at `now`; 0: none. */
uint64_t shmq_group_state_silent(const struct shmq_group_state *r, int64_t now);

/* Sets the planned owner of each of `n` partitions, if that was found at `epoch` and it is
 * still the epoch: SHMQ_OK, or STALE. */
int shmq_group_state_plan(struct shmq_group_state *r, uint64_t epoch, const uint64_t *whom,
                          uint32_t n);

/* Takes the partition for `id`: SHMQ_OK, BUSY while another has it, STALE if it is not meant
 * for `id`. */
int shmq_group_partition_claim(struct shmq_group_state *r, uint32_t partition, uint64_t id);

/* Leaves it: SHMQ_OK, or STALE if `id` does not have it. */
int shmq_group_partition_release(struct shmq_group_state *r, uint32_t partition, uint64_t id);

/* Everything below `offset` is done: SHMQ_OK, or STALE if the partition is not `id`'s. An
 * `id` of 0 may commit where nobody has the partition. */
int shmq_group_partition_commit(struct shmq_group_state *r, uint32_t partition, uint64_t id,
                                uint64_t offset, int64_t wall);

#endif
