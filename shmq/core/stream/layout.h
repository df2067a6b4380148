/* A stream in shared memory: a control segment, and one segment for each partition.
 *
 * header | holds | producers | index | ring
 *
 * The ring holds entries (stream/entry.h), each contiguous and at a multiple of 8. A *position*
 * counts the bytes of the ring since it was made and never wraps; its place in the ring is its
 * remainder by the ring's size. If an entry does not fit before the ring's end, `words` of 0 are
 * written there, and the entry is at the ring's beginning. The readable part is between `oldest`
 * and `committed`; these two and the entries are the truth, everything else is derived.
 *
 * A ring grows while it is in use. There is address space, but no memory, for two rings of the
 * greatest size, its *halves*. A ring that has not wrapped yet becomes longer in its half; any other
 * is followed by a larger one in the other half, where the positions behind the last entry are. No
 * entry moves.
 *
 * A loan is a place in the ring that a process writes before its record is appended. As long as it
 * is open, appends leave the place out: a skip entry leads over it.
 *
 * `index[k]` is the first entry that begins at or behind position k * SHMQ_INDEX_STEP. The index is
 * a ring, too; it finds entries by offset and by the time they were seen, as both only increase. */
#pragma once

#include <stddef.h>

#include "queue/layout.h"

#define SHMQ_LOG_MAGIC 0x474F4C53u    /* "SLOG" */
#define SHMQ_STREAM_MAGIC 0x4D525453u /* "STRM" */
#define SHMQ_LOG_VERSION 1u
#define SHMQ_STREAM_VERSION 1u
#define SHMQ_HOLDS 256u               /* readers and groups that hold records of a partition */
#define SHMQ_PRODUCERS 4096u          /* producers that a partition remembers           */
#define SHMQ_INDEX_STEP 16384u        /* bytes of the ring for each entry of the index */
#define SHMQ_GROUP_STATE_BYTES 262144u     /* room of the groups in the control segment      */
#define SHMQ_MAX_PARTITIONS 1024u
#define SHMQ_STREAM_PARTIES 64u       /* event loops that appends wake                  */
#define SHMQ_RING_GROWTH 16u          /* how many times its first size a ring can get */
#define SHMQ_MAX_GROWN_RING (1ull << 34) /* bytes: no ring grows further             */

enum shmq_log_overflow { SHMQ_LOG_DROP = 0, SHMQ_LOG_BLOCK = 1 };
enum shmq_log_durability { SHMQ_LOG_MEMORY = 0, SHMQ_LOG_JOURNAL = 1 };

/* The options of a stream. Times in ns, 0: none. */
struct shmq_log_options {
    uint64_t stream_id; /* of this incarnation; written before anything else            */
    uint64_t identity;  /* kept by later incarnations; its low half is the salt         */
    uint64_t ring_bytes;
    uint64_t max_record_bytes;
    uint64_t retention_bytes; /* 0: none */
    int64_t retention;
    int64_t created_at; /* ns since 1970 */
    uint64_t segment_bytes; /* size of a durable stream's file                          */
    uint32_t partitions;
    uint32_t partition; /* of a partition: its number                                   */
    uint8_t overflow;   /* enum shmq_log_overflow */
    uint8_t durability; /* enum shmq_log_durability */
    uint8_t confirm;    /* 1: an append waits for the disk by default                   */
    uint8_t reserved[5];
    uint64_t first;     /* the offset of its first record in this incarnation           */
    char name[SHMQ_NAME_BYTES];
};

/* All options as they are after an alteration. */
struct shmq_altered {
    struct shmq_log_options options;
    uint32_t crc;               /* CRC-32C of `options`                                 */
    uint32_t reserved;
};

/* An event loop that waits for records: one of its process's wakeups (queue/wakeup.h). */
struct shmq_stream_party {
    _Atomic uint64_t process; /* its number in the namespace; 0: the entry is free       */
    _Atomic uint32_t n;       /* the number of the wakeup                               */
    uint32_t reserved;
};

/* The first page of the control segment; SHMQ_GROUP_STATE_BYTES for the groups follow. */
struct shmq_stream {
    _Atomic uint64_t published; /* SHMQ_STREAM_MAGIC << 32 | version: stored last       */
    struct shmq_log_options options; /* that it was made with; fixed                    */
    uint32_t crc;               /* CRC-32C of `options`                                 */
    _Atomic uint32_t alterations; /* bit 0: the current one of `altered`; 0: none; truth */
    _Alignas(64) _Atomic uint32_t state; /* SHMQ_OPEN, SHMQ_GONE                        */
    _Atomic uint32_t wakeup;    /* a futex, raised for waiting readers: stream/wait.c      */
    _Atomic uint64_t shape;     /* (begin of those that take records) << 32 | partitions;
                                   0: all of `options.partitions` do; truth             */
    _Atomic uint64_t next_shape; /* what it will be; 0, or as `shape`: no change        */
    _Atomic uint32_t stored;    /* the alterations that its files have                  */
    _Alignas(64) struct shmq_altered altered[2];
    _Alignas(64) _Atomic uint64_t armed; /* a bit for each party that must be woken      */
    struct shmq_stream_party parties[SHMQ_STREAM_PARTIES];
};

/* Records from `position` on that must not be overwritten. */
struct shmq_hold {
    _Alignas(64) _Atomic uint32_t kind; /* enum shmq_hold_kind; stored last             */
    uint32_t reserved;
    uint64_t owner;            /* its process; 0: none, it stays until it is dropped    */
    _Atomic uint64_t position; /* only increases                                        */
    uint64_t tag;              /* its owner's name for it                               */
    uint64_t place;            /* of a loan: where it is                                */
};

enum shmq_hold_kind {
    SHMQ_HOLD_FREE = 0,
    SHMQ_HOLD_PIN = 1,    /* views: in every stream                                     */
    SHMQ_HOLD_CURSOR = 2, /* consumers: if the stream's overflow is "block"             */
    SHMQ_HOLD_LOAN = 3,   /* a loan: `tag` bytes from `position` on, and no others       */
};

/* The last records of a producer. */
struct shmq_produced {
    uint64_t producer;
    uint64_t sequence; /* of the first record of its last piece                         */
    uint64_t offset;   /* of that record                                                */
    uint32_t count;    /* records of that piece; 0: the entry is free                   */
    uint32_t restored; /* 1: from files: what came later may be lost with the memory    */
};

struct shmq_index_entry {
    uint64_t position; /* UINT64_MAX: none                                              */
    uint64_t offset;
    int64_t seen;
};

/* Positions from `begin` on are in `bytes` of memory from `place` on, over and over. */
struct shmq_ring {
    uint64_t begin;
    uint64_t place;
    uint64_t bytes;
};

/* What an alteration changes in a partition: two copies, one of them current. */
struct shmq_log_settings {
    struct shmq_ring ring;
    struct shmq_ring former; /* of the positions before `ring.begin`                    */
    uint64_t most_entry;     /* the most bytes of one entry                             */
    uint64_t retention_bytes; /* both are 0 if files do the retention                   */
    int64_t retention;
    uint32_t alterations;    /* of the stream, that led to this                         */
    uint32_t reserved;
};

struct shmq_log_header {
    /* -- read only once published, but for the settings ------------------------------ */
    _Atomic uint64_t published; /* SHMQ_LOG_MAGIC << 32 | version: stored last          */
    struct shmq_log_options options;
    uint64_t segment_bytes;
    uint32_t crc; /* CRC-32C of `options` and `segment_bytes`                           */
    uint32_t behind; /* its keys were in the partitions before this number               */
    _Atomic uint32_t settings_made; /* bit 0: the current one of `settings`; truth       */

    /* -- read by every reader -------------------------------------------------------- */
    _Alignas(64) _Atomic uint64_t committed; /* position behind the last entry; truth   */
    _Atomic uint64_t oldest;  /* of the oldest entry that can be read; truth            */
    _Atomic uint32_t state;   /* SHMQ_OPEN, SHMQ_GONE, SHMQ_BROKEN; truth               */
    _Atomic uint32_t armed;   /* 1: readers sleep and must be woken                     */
    _Atomic uint32_t crowded; /* appenders that sleep for lack of room                  */
    _Atomic uint32_t room;    /* a futex: raised when there may be room                 */

    /* -- for appenders, under `lock` ------------------------------------------------- */
    _Alignas(64) struct shmq_mutex lock;
    _Atomic uint64_t settled; /* what follows is derived from the entries before this   */
    _Atomic uint64_t next;    /* the offset of the next record                          */
    uint64_t last_begin;      /* position of the last entry                             */
    int64_t last_seen;        /* of the last entry, ns since 1970                       */
    uint64_t backed[2];       /* bytes of each half that have memory; mark              */
    uint64_t indexed;         /* entries of the index that have memory; mark            */
    uint64_t reach;           /* positions up to this have memory and an index; derived */
    uint32_t producers_backed; /* 1: they have memory; mark                             */
    uint32_t holds_made;      /* holds that were ever used; mark                        */
    uint64_t recoveries;      /* total */
    _Atomic uint32_t sealed;  /* 1: no appends any more                                 */
    _Atomic uint32_t loaned;  /* 1 + the hold of the loan in the ring; 0: none          */
    uint32_t last_pad;        /* 8-byte words: the last pad before the ring's end       */
    uint64_t last_wrap;       /* the position behind that pad                           */
    _Atomic uint32_t applied; /* as `alterations` of the settings; may be behind        */

    /* -- progress of the files: written by the persistence writer ---------------------- */
    _Alignas(64) _Atomic uint64_t synced; /* the offset behind the last record on disk  */
    _Atomic uint64_t synced_position; /* of that offset                                 */
    _Atomic uint32_t disk;    /* a futex: raised with each sync and failure             */
    _Atomic uint32_t error;   /* errno of the last attempt; 0: it succeeded             */
    _Atomic uint64_t writer;  /* its process number; 0: none                            */
    _Atomic uint64_t awaited; /* an append waits until this offset is on disk           */

    _Alignas(64) struct shmq_log_settings settings[2];
};

_Static_assert(sizeof(struct shmq_log_options) == 192, "what a stream is made with");
_Static_assert(offsetof(struct shmq_log_header, committed) == 256, "readers' line");
_Static_assert(offsetof(struct shmq_log_header, lock) == 320, "appenders' lines");
_Static_assert(sizeof(struct shmq_log_header) <= SHMQ_PAGE, "the header has a page");
_Static_assert(sizeof(struct shmq_stream) <= SHMQ_PAGE, "the control segment's page");
_Static_assert(sizeof(struct shmq_stream_party) == 16, "a quarter of a line");
_Static_assert(sizeof(struct shmq_hold) == 64, "a line for each hold");
_Static_assert(sizeof(struct shmq_produced) == 32, "a producer");
_Static_assert(sizeof(struct shmq_index_entry) == 24, "an entry of the index");
