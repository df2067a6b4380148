/* The shared segment of a queue: every byte of it.
 *
 *   header | attachments | holders | slots | timers | order | groups | dedupe | journal | amended | failures | bitmap | arena
 *
 * The slot table is the truth, and every index is derived from it. A message is one slot; one
 * atomic store of the slot's word commits a transition, after everything that it promises was
 * written. Lists, heaps, groups, the bitmap and the counters of depth can be rebuilt from the
 * slots in one scan (recover.c). Three things are truths of their own: the last sequence number
 * and the lease serial, which only increase, and the dedupe ring, whose entry becomes valid when
 * its put is committed.
 *
 * Everything here is an index or an offset, never a pointer, and is checked before use. A change
 * of any offset is a change of SHMQ_LAYOUT_VERSION. README.md explains the whole.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mutex.h"

#define SHMQ_MAGIC 0x53484d51u /* "SHMQ" */
#define SHMQ_LAYOUT_VERSION 1u
#define SHMQ_PAGE 4096u
#define SHMQ_UNIT 64u         /* the arena's granule: a cache line */
#define SHMQ_NIL UINT32_MAX   /* no slot, no group */
#define SHMQ_MAX_CAPACITY ((1u << 24) - 2)
#define SHMQ_GROWTH 16u       /* how many times its first size a queue can get */
#define SHMQ_MAX_GROWN (1ull << 36) /* bytes: no arena grows further */
#define SHMQ_MAX_PRIORITIES 16
#define SHMQ_MAX_ATTACHMENTS 4096u
#define SHMQ_HOLDERS 64u      /* named holders of leases: one page of them              */
#define SHMQ_ERROR_BYTES 4096u /* the largest error that a message keeps                  */
#define SHMQ_FAILURE_TYPES 64u /* types of errors that are counted each: two pages       */
#define SHMQ_BY_NAME 0xFFFFu  /* as a slot's owner: a named holder has the lease       */
#define SHMQ_PARTIES 64u      /* waiting parties of a queue, one bit each                 */
#define SHMQ_NAME_MAX 100     /* characters of a name */
#define SHMQ_NAME_BYTES 104
#define SHMQ_CLASSES 40       /* 0: a slot without a block; 1..36 in use, see slot.h */
#define SHMQ_RING 128u        /* entries of each ring between puts and gets; 2^n      */
#define SHMQ_LEAST_HINTS 1024u /* entries of the rings of hints at first; 2^n          */

/* ---- a slot's word: serial (40 bits) | deliveries (16) | flags (4) | state (4) ---- */

enum shmq_state {
    SHMQ_FREE = 0,    /* unused; may keep a block for the next message of its size     */
    SHMQ_FILLING = 1, /* its owner writes the body; not a message yet                  */
    SHMQ_STAGED = 2,  /* complete, but invisible until its owner commits it            */
    SHMQ_READY = 3,   /* visible: in the order, or behind the front of its group       */
    SHMQ_DELAYED = 4, /* becomes READY at `deadline`                                   */
    SHMQ_LEASED = 5,  /* leased until `deadline`; the serial is in the receipt         */
    SHMQ_DEAD = 6,    /* waits to be moved to the dead-letter queue                    */
    SHMQ_MOVING = 7,  /* its owner moves it to another queue                           */
    SHMQ_ZOMBIE = 8,  /* settled, but the bytes stay while a view of them exists       */
    SHMQ_ACKED = 9,   /* acknowledged by its holder without the lock; to be freed          */
    SHMQ_SPENT = 10,  /* settled; FREE once the journal has it: see change_hints.h              */
    SHMQ_STATES
};

#define SHMQ_STATE_MASK 0xFull
#define SHMQ_F_HANDED 0x10ull  /* this delivery was handed to the application, and counts */
#define SHMQ_F_HOLDS 0x20ull   /* DELAYED by a nack: holds its group back               */
#define SHMQ_F_CLOSED 0x20ull  /* LEASED: about to end, cannot be handed out any more   */
#define SHMQ_F_MOVED 0x20ull   /* SPENT: another queue has the message now              */
#define SHMQ_F_ROW 0x10ull     /* STAGED: it is row `deadline` of a chunk: see transfer.h   */
#define SHMQ_F_DEFERRED 0x20ull /* STAGED: data for its commit stand behind the body    */
#define SHMQ_F_GROUPED 0x40ull /* `group` is set                                        */
#define SHMQ_F_TTL 0x80ull     /* `expires` is set                                      */
#define SHMQ_DELIVERIES_SHIFT 8
#define SHMQ_DELIVERIES_MAX 0xFFFFull
#define SHMQ_SERIAL_SHIFT 24
#define SHMQ_SERIAL_MAX ((1ull << 40) - 1)

/* A receipt is serial << 24 | slot: valid for one lease of one slot. */
#define SHMQ_RECEIPT_SLOT 0xFFFFFFull

/* The list or heap that a slot is in; derived. Three bits of `lane`. */
enum shmq_where {
    SHMQ_NOWHERE = 0,
    SHMQ_IN_FIFO = 1,       /* header.fifo[priority], by next/prev                     */
    SHMQ_IN_ORDER = 2,      /* the order heap, at order_pos                            */
    SHMQ_IN_GROUP_RUN = 3,  /* its group's run, by next/prev                           */
    SHMQ_IN_GROUP_HEAP = 4, /* its group's heap, by child/next/prev                    */
    SHMQ_IN_LEASES = 5,     /* header.leases, by next/prev                             */
    SHMQ_IN_DYING = 6,      /* header.dying, by next/prev                              */
    SHMQ_IN_FLIGHT = 7,     /* its group's messages in flight, by next/prev            */
};

/* The bits of `lane`: priority (4) | where (3) | tagged (1). A put sets it as a whole, so a message
 * has no tag of the one before it. */
#define SHMQ_TAGGED 0x80u      /* `holder`, `generation` and `epoch` are set               */

struct shmq_slot {
    _Atomic uint64_t word; /* the commit point: see above                              */
    uint64_t seq;          /* sequence number; 1 is the first                          */
    int64_t deadline;      /* LEASED, DELAYED: its end, monotonic ns; F_ROW: the row   */
    uint32_t block;        /* its bytes in the arena: first unit,                      */
    uint32_t units;        /*   and number of units; 0 if it has none                  */
    uint32_t body_bytes;   /* the body is at the block's beginning,                    */
    uint32_t meta_bytes;   /*   the properties (msgpack) are at its end                */
    uint32_t next;         /* links of the list it is in; derived                      */
    uint32_t prev;
    uint16_t owner;        /* FILLING, STAGED, LEASED, MOVING: attachment + 1; BY_NAME */
    uint8_t lane;          /* priority | where << 4 | TAGGED                           */
    uint8_t codec;         /* see shmq/model/codec/codecs.py                           */
    uint32_t pins;         /* views: attachment + 1 << 16 | their number               */
    int64_t put_at;        /* monotonic ns                                             */
    /* -- a message without group, ttl, delay or history fits into the cache line above -- */
    int64_t expires;       /* ttl: monotonic ns                                        */
    uint64_t group;        /* hash of the group's name; never 0 with F_GROUPED         */
    uint32_t group_at;     /* its group's record; derived                              */
    uint32_t timer_pos;    /* its position in the timer heap; derived                  */
    uint32_t order_pos;    /* its position in the order heap; derived                  */
    uint32_t child;        /* first child in the group's heap; derived                 */
    int64_t dead_at;       /* DEAD, MOVING: when it died, ns since 1970                */
    uint64_t origin_queue; /* of a copy: the id of the queue it was moved from; or 0,  */
    uint64_t origin_seq;   /*   and its sequence number there                          */
    uint8_t reason;        /* DEAD, MOVING: enum shmq_reason; 0: not a dead letter     */
    uint8_t holder;        /* TAGGED: the run's holder, by its entry + 1,              */
    uint16_t generation;   /*   of which this must be the generation, too,             */
    uint32_t epoch;        /*   and the holder's number of the run                     */
};

/* Why a message died; ALIVE: it did not, or overflow dropped it while it was visible. */
enum shmq_reason {
    SHMQ_ALIVE = 0,
    SHMQ_REJECTED = 1,
    SHMQ_EXHAUSTED = 2,
    SHMQ_EXPIRED_TTL = 3,
    SHMQ_REASONS
};

/* A group with at least one message in the queue. At most one of its messages is the front: either
 * the one to be served next (READY, in the order), or one in flight (LEASED, or DELAYED with
 * F_HOLDS). While there is a front, the others wait behind it. A run may have several messages of
 * the group in flight: they are a list (IN_FLIGHT), and the front is its head. */
struct shmq_group {
    uint64_t hash;
    uint32_t head, tail; /* the run: READY messages that came in the order of service  */
    uint32_t heap;       /* READY messages that came out of order                      */
    uint32_t front;
    uint32_t count;      /* live messages of the group, in every state                 */
    uint32_t chain;      /* next record of the bucket, or of the free list             */
};

/* One handle of one process. */
struct shmq_attachment {
    uint64_t process; /* its process number in the namespace; 0: the entry is free     */
    int64_t since;    /* ns since 1970                                                 */
    uint32_t pid;     /* for display; never used to tell whether it is alive           */
    uint32_t leases;  /* derived                                                       */
    uint32_t asleep[2]; /* its number of sleepers, by enum shmq_event                  */
    char name[29];
    uint8_t consumes; /* 1: it has leased or waited, see shmq_consume                  */
    uint8_t watchers[2]; /* how many of its sleepers watch, by enum shmq_event         */
};

/* A holder of leases with a name, whichever process acts for it: a truth of its own. */
struct shmq_holder {
    uint64_t hash;   /* of its name; 0: the entry is free                              */
    uint64_t token;  /* of its newest claim: only who shows it may act                 */
    uint64_t serial; /* at that claim: its leases up to this one are void              */
    int64_t since;   /* that claim, ns since 1970                                      */
    uint32_t leases; /* derived                                                        */
    uint16_t generation; /* raised when the entry is freed: older tags name nobody      */
    char name[26];   /* for display                                                    */
};

/* A dedupe id whose window has not passed. */
struct shmq_dedupe {
    uint64_t hash[2];
    uint64_t seq;
    int64_t until;  /* monotonic ns                                                    */
    uint32_t chain; /* the next older one of its bucket, by counter; derived           */
    uint32_t reserved;
};

struct shmq_list {
    uint32_t head, tail;
};

#define SHMQ_FILTERED (1u << 31) /* in `n`: wake it for each message that arrives          */

/* A party that waits on its own wakeup: see wait.h. */
struct shmq_party {
    uint64_t process;    /* its process's number in the namespace; 0: the entry is free */
    uint32_t n;          /* the number of that process's wakeup; SHMQ_FILTERED           */
    uint32_t attachment; /* the handle through which it waits, + 1                     */
};

enum shmq_event { SHMQ_NOT_EMPTY = 0, SHMQ_NOT_FULL = 1 };
enum shmq_overflow { SHMQ_REJECT = 0, SHMQ_BLOCK = 1, SHMQ_DROP_OLDEST = 2 };
enum shmq_durability { SHMQ_MEMORY = 0, SHMQ_SNAPSHOT = 1, SHMQ_JOURNAL = 2 };

/* The options that can be altered while the queue is in use: two copies, see shmq_policies_now. Times
 * are in ns, 0 for none. */
struct shmq_policies {
    uint64_t max_message_bytes;
    uint64_t arena_bytes; /* the sizes, which the geometry bounds: see alter.c        */
    int64_t visibility;
    int64_t ttl;
    int64_t dead_letter_ttl;
    int64_t retry;
    int64_t retry_max;
    int64_t snapshot_interval;
    int64_t expires; /* how long it may be without a consumer                         */
    uint32_t max_deliveries; /* 0: no limit */
    uint8_t overflow;
    uint8_t drop_expired;
    uint8_t confirm; /* 1: a put waits for the disk by default               */
    uint8_t reserved;
    uint32_t capacity;
    uint32_t error_bytes; /* of an error that a message keeps: at most SHMQ_ERROR_BYTES */
    uint32_t reserved1;
    uint32_t crc; /* CRC32C of the members before it                                */
};

/* The options that a queue was made with. All but the policies are fixed before the segment is
 * published, and protected by the header's `crc`. */
struct shmq_options {
    uint64_t queue_id;
    uint64_t arena_bytes; /* the first one, from which the geometry follows           */
    int64_t created_at; /* ns since 1970 */
    int64_t dedupe_window;
    uint64_t hash_key; /* for groups and dedupe ids; a restored queue keeps it         */
    uint32_t capacity;    /* the same                                                 */
    uint32_t priorities;
    uint8_t dead_letters; /* whether there is a dead-letter queue */
    uint8_t durability;
    uint8_t auto_delete; /* 1: it ends with its last consumer                        */
    uint8_t exclusive; /* 1: it ends with the process that made it                 */
    uint8_t reserved[4];
    char name[SHMQ_NAME_BYTES];
    char dead_letter[SHMQ_NAME_BYTES];
    struct shmq_policies policies[2]; /* that of `alterations` is current; a new queue's: 0   */
};

/* What the journal has of a slot: message `seq`, in commit `batch`. See change_hints.h. */
struct shmq_logged {
    uint64_t seq;
    uint64_t batch;
};

/* The properties of message `seq` with its last error, in a block of their own: see amend.h. An entry
 * for another message than the slot's means nothing. */
struct shmq_amended {
    _Atomic uint64_t seq;
    uint32_t block; /* its first unit in the arena                                      */
    uint32_t bytes;
};

/* How many failed deliveries had an error of this type: see failures.h. */
struct shmq_failure_type {
    uint64_t count;
    uint8_t bytes; /* of the name: UTF-8, whole characters                             */
    char name[119];
};

/* The journal's progress. Only the persistence writer writes it, except for `awaited`. */
struct shmq_journal {
    _Atomic uint64_t synced;  /* every put up to this number is on disk, or settled       */
    _Atomic uint64_t batch;   /* the last commit that is on disk                        */
    _Atomic uint32_t wakeup;  /* raised with each commit and failure: a futex           */
    _Atomic uint32_t error;   /* errno of the last attempt; 0: it succeeded             */
    uint64_t segment;         /* the published position: the journal's segment,         */
    uint64_t offset;          /*   and how many of its bytes are synced                 */
    uint64_t writer;          /* its process number in the namespace; 0: none           */
    int64_t synced_at;        /* ns since 1970                                          */
    uint64_t dedupe;          /* counter: the dedupe ids before are on disk             */
    _Alignas(64) _Atomic uint64_t awaited; /* a process waits for this number           */
    _Alignas(64) uint64_t bytes; /* since the queue was made: written to the journal,   */
    uint64_t commits;         /*   with as many syncs,                                  */
    uint64_t puts;            /*   messages,                                            */
    uint64_t settles;         /*   and settlements                                      */
    int64_t snapshot_at;      /* ns since 1970: the newest snapshot; 0: none            */
    uint64_t snapshot_bytes;
};

struct shmq_sample {
    int64_t at;
    uint64_t inflow, outflow;
};

struct shmq_header {
    /* -- read only once published, but for the policies ------------------------------ */
    _Atomic uint64_t published; /* SHMQ_MAGIC << 32 | version: stored last              */
    struct shmq_options options;
    uint64_t segment_bytes;
    uint32_t crc; /* CRC32C of `segment_bytes`, and `options` up to the policies        */
    _Atomic uint32_t alterations; /* of the policies; bit 0: the current copy           */

    /* -- read by every operation, written seldom ----------------------------------- */
    _Alignas(64) int64_t next_tick; /* nothing is due before this; may be early         */
    _Atomic uint32_t state; /* SHMQ_OPEN, SHMQ_GONE (deleted), SHMQ_BROKEN (damaged)   */
    _Atomic uint32_t unsettled; /* a holder died: the indexes must be rebuilt          */
    struct shmq_list dying; /* DEAD slots                                              */
    uint32_t asleep[2];     /* sleepers, by enum shmq_event                            */
    _Atomic uint64_t armed[2]; /* bit b: wake parties[b], by enum shmq_event           */
    int64_t liveness_at;    /* when to check the attached processes again              */
    _Atomic uint32_t journal_asleep; /* events that must wake the writer: change_hints.h    */
    _Atomic uint32_t journal_epoch;  /* raised when hints may have been lost           */

    /* -- the put side, under `put_lock` ---------------------------------------------- */
    _Alignas(64) struct shmq_mutex put_lock;
    uint64_t last_seq;
    _Atomic uint32_t inbox_tail;    /* counters: a ring's entry is counter % SHMQ_RING */
    _Atomic uint32_t returned_head;
    _Alignas(64) uint32_t inbox_seen; /* inbox_head and returned_tail as last read     */
    uint32_t returned_seen;
    _Atomic uint64_t fresh_tail; /* the last sequence number whose put is complete     */
    uint32_t spare[SHMQ_CLASSES]; /* free slots for puts, by the class of their block  */

    /* -- the get side: gets and settlements, under `lock` ----------------------------- */
    _Alignas(64) struct shmq_mutex lock;
    uint64_t serial;        /* of the newest lease                                     */
    _Atomic uint32_t ready; /* messages in the order: available to a get at once        */
    uint32_t visible;       /* READY slots                                             */
    _Atomic uint32_t amended; /* messages with amended properties                         */
    _Alignas(64) struct shmq_list leases; /* leases in the order of their ends          */
    uint32_t leased;
    uint32_t live;          /* slots that are not FREE                                 */
    uint32_t fifo_mask;     /* bit p: fifo[p] is not empty                             */
    uint32_t delayed;
    uint32_t dead;          /* DEAD and MOVING slots                                   */
    uint32_t staged;
    uint32_t order_len;
    uint32_t timer_len;
    uint32_t units_used;    /* bits set in the bitmap                                  */
    uint32_t units_cached;  /* of these, units in blocks of FREE slots                 */
    _Atomic uint32_t inbox_head;
    _Atomic uint32_t returned_tail;
    uint64_t acked;
    struct shmq_list fifo[SHMQ_MAX_PRIORITIES];
    uint32_t free[SHMQ_CLASSES]; /* free slots by the class of their block              */
    uint32_t returned_out;  /* returned_head as last read                              */
    uint32_t spent;         /* SPENT slots                                             */
    _Atomic uint64_t spent_tail; /* counter of hints to settled and changed slots      */

    /* -- the rings between the two sides: see put_ring.h ------------------------------ */
    _Alignas(64) uint32_t inbox[SHMQ_RING];    /* slots that are not in the order yet     */
    uint32_t returned[SHMQ_RING]; /* freed slots, for the next puts: class << 24 | slot */

    /* -- high-water marks and sizes of the indexes -------------------------------- */
    _Alignas(64) uint32_t slots_made; /* slots that were ever used                     */
    uint32_t slots_backed;   /* slots, and entries of both heaps, that have memory     */
    uint32_t groups_made;
    uint32_t groups_backed;
    uint32_t group_free;     /* head of the list of free records                       */
    uint32_t groups;         /* records in use                                         */
    uint32_t group_buckets;  /* their number, 2^n; 0: none yet                         */
    uint32_t attachments_made;
    uint32_t attachments_backed;
    uint32_t units_backed;   /* of the arena                                           */
    uint32_t units_hint;     /* every unit below is in use                             */
    uint32_t hints;          /* entries of the rings of hints, 2^n; 0: no journal      */
    _Atomic uint32_t amended_backed; /* entries for amended properties that have memory        */
    uint32_t amended_units;  /* of the arena, in their blocks                          */
    _Alignas(64) uint64_t dedupe_head; /* counters: the ring's entry is counter % size */
    uint64_t dedupe_tail;
    uint32_t dedupe_size;    /* entries in the ring, a power of two; 0: none yet       */
    uint32_t reserved1;
    uint64_t nacked;
    uint64_t expired;
    uint64_t dead_lettered;
    uint64_t dropped;
    uint64_t deduped;
    _Alignas(64) uint64_t recoveries;
    uint64_t redelivered;
    struct shmq_sample samples[2]; /* the older and the newer, for the rates           */

    /* -- written only while there are waiters ----------------------------------------- */
    _Alignas(64) uint32_t posted[2]; /* posts that no sleeper has taken yet            */
    uint32_t last_woken[2];          /* the party that was woken last                  */
    int64_t alarm;          /* a waiter looks by then without a post; see wait.h       */
    int64_t watched_at[2];  /* when a watcher fell asleep last; see wait.h             */
    uint32_t watchers[2];   /* sleepers that watch, by enum shmq_event                 */
    struct shmq_party parties[SHMQ_PARTIES];

    /* -- written by the persistence writer ---------------------------------------------- */
    _Alignas(64) struct shmq_journal journal;

    /* -- parts of `dead_lettered` and `dropped`, under `lock` --------------------------- */
    _Alignas(64) uint64_t dead_lettered_by[SHMQ_REASONS]; /* by enum shmq_reason        */
    uint64_t dropped_by[SHMQ_REASONS];

    /* -- of a queue that ends by itself, under `lock`: see shmq_is_unused ---------------- */
    _Alignas(64) int64_t unused_since; /* monotonic ns: its last consumer left, or it was made */
    uint32_t consumed;      /* 1: it has had a consumer                                */
    uint32_t holders_backed; /* 1: the holders have memory                             */

    /* -- failed deliveries, under `lock`: see failures.h ------------------------------- */
    uint64_t failed;        /* with an error of any type                               */
    uint32_t failure_types; /* types that have an entry                                */

    /* -- set without a lock ------------------------------------------------------------ */
    _Atomic uint32_t disowned; /* 1: see shmq_disown                                   */
};

enum { SHMQ_OPEN = 0, SHMQ_GONE = 1, SHMQ_BROKEN = 2 };

/* The places of the regions, which follow from the options alone. Offsets in bytes. Each region has
 * room for the greatest size that the queue can be altered to, and takes memory as it is used. */
struct shmq_geometry {
    uint64_t attachments, holders, slots;
    uint64_t timer_keys, timer_slots, order_keys, order_slots;
    uint64_t groups, group_buckets;
    uint64_t dedupe, dedupe_buckets;
    uint64_t logged, fresh, spent; /* only with a journal                              */
    uint64_t amended, failures;
    uint64_t bitmap, arena;
    uint64_t segment_bytes;
    uint32_t slots_max;        /* the most slots, groups and entries of heaps          */
    uint32_t units;            /* the most of the arena                                */
    uint32_t group_buckets_max;
    uint32_t dedupe_max;       /* the most entries of the dedupe ring                  */
    uint32_t hints_max;        /* the most entries of the rings of hints               */
};

static inline uint64_t shmq_page_up(uint64_t bytes)
{
    return (bytes + SHMQ_PAGE - 1) / SHMQ_PAGE * SHMQ_PAGE;
}

static inline uint32_t shmq_power_up(uint64_t at_least)
{
    uint32_t power = 1;

    while (power < at_least)
        power *= 2;
    return power;
}

/* The offset of a region of `count` entries, which begins at a page; moves the cursor behind it. */
static inline uint64_t shmq_region(uint64_t *cursor, uint64_t count, uint64_t size)
{
    uint64_t at = shmq_page_up(*cursor);

    *cursor = at + count * size;
    return at;
}

_Static_assert(sizeof(struct shmq_slot) == 128, "a slot is two cache lines");
_Static_assert(offsetof(struct shmq_slot, expires) == 64, "the hot half is one line");
_Static_assert(offsetof(struct shmq_slot, origin_seq) == 112, "slot layout");
_Static_assert(offsetof(struct shmq_slot, epoch) == 124, "slot layout");
_Static_assert(sizeof(struct shmq_holder) == 64, "a holder is one line");
_Static_assert(SHMQ_HOLDERS * sizeof(struct shmq_holder) == SHMQ_PAGE, "the holders are one page");
_Static_assert(sizeof(struct shmq_group) == 32, "a group's record is half a line");
_Static_assert(sizeof(struct shmq_attachment) == 64, "an attachment is one line");
_Static_assert(sizeof(struct shmq_dedupe) == 40, "dedupe layout");
_Static_assert(sizeof(struct shmq_policies) == 96, "another size is another layout version");
_Static_assert(sizeof(struct shmq_options) == 456, "another size is another layout version");
_Static_assert(sizeof(struct shmq_amended) == 16, "four entries are one line");
_Static_assert(sizeof(struct shmq_failure_type) == 128, "a type of errors is two lines");
_Static_assert(sizeof(struct shmq_logged) == 16, "what is logged of four slots is one line");
_Static_assert(sizeof(struct shmq_party) == 16, "a party's entry is a quarter of a line");
_Static_assert(sizeof(struct shmq_header) <= SHMQ_PAGE, "the header is one page");

/* Members that threads write at the same time are on separate cache lines. */
#define SHMQ_BEGINS_A_LINE(member) \
    _Static_assert(offsetof(struct shmq_header, member) % 64 == 0, #member " begins a line")
SHMQ_BEGINS_A_LINE(next_tick);
SHMQ_BEGINS_A_LINE(put_lock);
SHMQ_BEGINS_A_LINE(inbox_seen);
SHMQ_BEGINS_A_LINE(lock);
SHMQ_BEGINS_A_LINE(leases);
SHMQ_BEGINS_A_LINE(fifo);
SHMQ_BEGINS_A_LINE(free);
SHMQ_BEGINS_A_LINE(inbox);
SHMQ_BEGINS_A_LINE(slots_made);
SHMQ_BEGINS_A_LINE(dedupe_head);
SHMQ_BEGINS_A_LINE(recoveries);
SHMQ_BEGINS_A_LINE(posted);
SHMQ_BEGINS_A_LINE(journal);
SHMQ_BEGINS_A_LINE(dead_lettered_by);
SHMQ_BEGINS_A_LINE(unused_since);
#undef SHMQ_BEGINS_A_LINE
