/* A process's handle of one partition of a stream, and all that can be done with it.
 *
 * A handle is private memory: the mapping, and pointers to its regions. Appenders take the
 * partition's lock; readers take none. */
#ifndef SHMQ_STREAM_LOG_H
#define SHMQ_STREAM_LOG_H

#include "base/clock.h"
#include "base/crash_points.h"
#include "stream/entry.h"
#include "stream/layout.h"
#include "base/status.h"

/* Beside enum shmq_status. */
enum shmq_log_status {
    SHMQ_OUT_OF_RANGE = 64, /* the offset is gone, or beyond the next                   */
    SHMQ_GAP,               /* a producer's sequence numbers do not begin where it is    */
    SHMQ_MALFORMED,         /* bytes from outside are no block of entries               */
    SHMQ_SEALED,            /* the partition takes no records any more                  */
};

struct shmq_log {
    struct shmq_log_header *h;
    struct shmq_hold *holds;
    struct shmq_produced *producers;
    struct shmq_index_entry *index;
    unsigned char *ring;
    uint64_t ring_bytes;    /* our own copies: they bound every index                   */
    uint64_t index_count;
    uint64_t most_entry;    /* bytes of one, at most                                    */
    uint64_t retention_bytes;
    int64_t retention;
    uint32_t salt;
    bool blocks, durable;
    int fd;                 /* to back the segment with memory                          */
    struct shmq_stream *stream; /* whose wakeup readers wait on; NULL: nobody does      */
    uint64_t refused_bytes; /* bytes that could not be had, when NO_SPACE is returned   */
};

struct shmq_log_geometry {
    uint64_t holds, producers, index, ring, segment_bytes, ring_bytes, index_count;
};

/* ---- log.c: making a segment, and deciding whether one may be trusted ---- */

void shmq_log_lay_out(const struct shmq_log_options *options, struct shmq_log_geometry *geo);
void shmq_log_bind(struct shmq_log *log, void *base, int fd, const struct shmq_log_geometry *geo,
                   const struct shmq_log_options *options, struct shmq_stream *stream);

/* Makes an empty partition of a zeroed segment whose first page is mapped; nothing is seen
 * before `last_seen` in it. SHMQ_OK, NO_SPACE, DAMAGED. */
int shmq_log_prepare(struct shmq_log *log, const struct shmq_log_options *options,
                     int64_t last_seen);
void shmq_log_announce(struct shmq_log *log);

/* As shmq_inspect: SHMQ_OK, NOT_READY, INCOMPATIBLE, TRUNCATED or DAMAGED. */
int shmq_log_inspect(const void *base, uint64_t mapped, struct shmq_log_geometry *geo);

/* The same of the control segment, of which the first page is mapped. */
void shmq_stream_prepare(struct shmq_stream *stream, const struct shmq_log_options *options);
void shmq_stream_announce(struct shmq_stream *stream);
int shmq_stream_inspect(const void *base, uint64_t mapped);

/* Which partitions there are, and from which on they take records. Changed under the registry
 * lock alone: `next_shape` first, then the seals, then `shape`; so a process that finds the first
 * two different goes on where a dead one stopped. */
uint64_t shmq_stream_shape(const struct shmq_stream *stream);

/* What it is to become, if that is something else; 0. Not to be believed before it was
 * checked by shmq_stream_is_shape. */
uint64_t shmq_stream_next_shape(const struct shmq_stream *stream);
bool shmq_stream_is_shape(const struct shmq_stream *stream, uint64_t shape);
void shmq_stream_intend(struct shmq_stream *stream, uint64_t shape);
void shmq_stream_reshape(struct shmq_stream *stream, uint64_t shape);

/* Ensures: bytes [offset, offset + size) of the segment have memory. */
int shmq_log_back(struct shmq_log *log, uint64_t offset, uint64_t size);

/* The partition is deleted: waiting threads wake up. */
void shmq_log_delete(struct shmq_log *log);

/* Nothing is appended any more; appenders that wait for room wake up. Holds the lock. */
void shmq_log_seal(struct shmq_log *log);

/* ---- stream/lock.c ---- */

/* Takes the lock after spinning, and waiting up to `ns` in the kernel: SHMQ_OK, BUSY, DELETED
 * (not held then), DAMAGED. What a dead holder left is mended before it returns. */
int shmq_log_lock(struct shmq_log *log, int64_t ns);

/* The thread that keeps others from it; 0: none. */
uint32_t shmq_log_holder(const struct shmq_log *log);
void shmq_log_unlock(struct shmq_log *log);

/* Derives anew what hangs on the entries behind `settled`. Holds the lock. */
int shmq_log_recover(struct shmq_log *log);

/* ---- stream/append.c ---- */

struct shmq_log_item {
    const void *value, *key, *headers;
    uint32_t value_bytes, key_bytes, headers_bytes;
    uint8_t flags, codec, compression; /* flags: SHMQ_E_KEYED alone                     */
    uint32_t count, raw;
    int64_t timestamp;    /* ns since 1970; 0: that of the piece                        */
};

struct shmq_log_piece {
    const struct shmq_log_item *items;
    uint32_t count;       /* of items; 1 at least                                       */
    int64_t timestamp;    /* ns since 1970; 0: now, and not before the last one seen    */
    bool produced;        /* with a producer and the sequence of its first record       */
    bool gaps;            /* whose sequences may jump forward                           */
    uint64_t producer, sequence;
};

struct shmq_log_appended {
    uint64_t first;       /* UINT64_MAX: of a duplicate that is gone                    */
    uint64_t records;
    int64_t timestamp;    /* of the last one                                            */
    uint64_t expected;    /* for GAP: the sequence that comes next                      */
    bool duplicate;
};

/* Appends all items in one step: readers see all of them, or none. SHMQ_OK, FULL (nothing may
 * go, or none yet), TOO_LARGE, NO_SPACE, GAP, SEALED, DAMAGED. Holds the lock. */
int shmq_log_append(struct shmq_log *log, const struct shmq_log_piece *piece,
                    struct shmq_log_appended *out);

/* ---- retention.c ---- */

/* Where the ring's end was last passed before some position, and the bytes of the pad there. */
struct shmq_log_wrap {
    uint64_t position, pad;
};

/* Ensures: the ring has room from `committed` to `end`, and memory; beyond retention_bytes
 * entries go, but what stays has nine tenths of them. Holds the lock. */
int shmq_log_make_room(struct shmq_log *log, uint64_t end, const struct shmq_log_wrap *wrap);

/* Ensures: an append of so many bytes, with a producer, finds memory, if it is the next. Holds
 * the lock; SHMQ_NO_SPACE. */
int shmq_log_reserve(struct shmq_log *log, uint64_t bytes);

/* Lets records go that are older than the stream keeps them. Holds the lock. */
void shmq_log_expire(struct shmq_log *log);

/* Whether shmq_log_expire has something to do. Without the lock. */
bool shmq_log_is_stale(const struct shmq_log *log);

/* The position that must not be overwritten. */
uint64_t shmq_log_floor(const struct shmq_log *log);

/* Takes a hold from `offset` on: SHMQ_OK, OUT_OF_RANGE, CROWDED. Holds the lock. */
int shmq_log_hold(struct shmq_log *log, uint32_t kind, uint64_t owner, uint64_t tag,
                  uint64_t offset, uint32_t *at);

/* Moves it to a later offset; one that is gone, or that is to come, is all the same. `hint` is
 * as for shmq_log_find. */
void shmq_log_move(struct shmq_log *log, uint32_t at, uint64_t offset, uint64_t hint);
void shmq_log_drop(struct shmq_log *log, uint32_t at);

/* ---- stream/index.c ---- */

/* The entry at `from`, which is the one before committed, begins there: fills the index up
 * to it. Holds the lock. */
void shmq_log_index(struct shmq_log *log, uint64_t last_begin, uint64_t begin, uint64_t offset,
                    int64_t seen);

/* No entry of the index behind the last entry: what a dead appender wrote there goes. Holds the
 * lock. */
void shmq_log_trim_index(struct shmq_log *log);

/* Where to start looking: of an entry that is not behind the one that has `offset`; or of one
 * that was seen before `time`, or the oldest. Without the lock; to be checked afterwards. */
uint64_t shmq_log_near_offset(const struct shmq_log *log, uint64_t oldest, uint64_t committed,
                              uint64_t offset);
uint64_t shmq_log_near_time(const struct shmq_log *log, uint64_t oldest, uint64_t committed,
                            int64_t time);

/* The first entry that begins at or behind `position`, as far as the index tells: `committed`
 * if none does. Holds the lock. */
uint64_t shmq_log_indexed_behind(const struct shmq_log *log, uint64_t position);

/* ---- producers.c ---- */

struct shmq_produced *shmq_log_producer(struct shmq_log *log, uint64_t producer);

/* Gives the table of producers its memory: before anything of a producer is published, so that
 * what is appended is remembered. SHMQ_NO_SPACE if there is none. */
int shmq_log_back_producers(struct shmq_log *log);
void shmq_log_remember(struct shmq_log *log, uint64_t producer, uint64_t sequence, uint64_t offset,
                       uint32_t count);

/* The same of what files say, in a partition that nobody else has yet: once, the producer may go
 * on with any later sequence number, and of a piece that is there in part the rest is appended. */
void shmq_log_restore(struct shmq_log *log, uint64_t producer, uint64_t sequence, uint64_t offset,
                      uint32_t count);

/* ---- stream/read.c ---- */

/* A run of whole entries that was found in the ring. */
struct shmq_log_extent {
    uint64_t begin, end;    /* positions                                                */
    uint64_t wrap, resume;  /* positions: the pad within it, and what is behind that     */
    uint64_t first, next;   /* offsets: of the first entry, and behind the last         */
    uint64_t bytes;         /* of the entries, pads left out                            */
    uint64_t entries;
    int64_t seen;           /* of the first entry                                       */
    bool packed;            /* one of them at least is compressed                       */
};

struct shmq_log_bounds {
    uint64_t earliest, latest;  /* offsets */
    uint64_t oldest, committed; /* positions */
    int64_t earliest_at, latest_at; /* when they were seen, ns since 1970; 0: empty */
};

/* The records that are there now. SHMQ_OK, DAMAGED. */
int shmq_log_bounds(const struct shmq_log *log, struct shmq_log_bounds *bounds);

/* Finds the entries from the one that has `offset` on, at most `limit` records beyond
 * `offset` and `most` bytes, but at least one entry; none that begin at or behind offset
 * `end`. `hint`: the position of that offset as an earlier extent told; or UINT64_MAX. SHMQ_OK
 * (of no entries: there is nothing yet), OUT_OF_RANGE, DELETED, DAMAGED. */
int shmq_log_find(const struct shmq_log *log, uint64_t offset, uint64_t end, uint64_t limit,
                  uint64_t most, uint64_t hint, struct shmq_log_extent *extent);

/* Copies the entries to `to`, which has room for `bytes`. False: they are overwritten by now,
 * and what was copied is worthless. */
bool shmq_log_copy(const struct shmq_log *log, const struct shmq_log_extent *extent, void *to);

/* The entries in place: one piece, or two where the ring wraps. How many. */
int shmq_log_pieces(const struct shmq_log *log, const struct shmq_log_extent *extent,
                    const unsigned char *at[2], uint64_t bytes[2]);

/* Whether all from `position` on is still there, and so was during all reads before. */
bool shmq_log_holds(const struct shmq_log *log, uint64_t position);

/* The offset of the first record seen from that time on; `latest` if there is none. */
int shmq_log_at(const struct shmq_log *log, int64_t time, uint64_t *offset);

/* ---- stream/wait.c ---- */

/* Wakes the readers, if any sleep. Without the lock. */
void shmq_log_wake(struct shmq_log *log);

/* Wakes all threads that wait for anything in the partition. */
void shmq_log_wake_all(struct shmq_log *log);

/* Says that a reader is about to sleep until something is appended: it looks once more after
 * it. Returns what shmq_stream_sleep takes. */
uint32_t shmq_log_arm(struct shmq_log *log);

/* Looks, without sleeping, until an entry ends behind `position`, or the partition has ended,
 * for at most `ns`: whether it did. Of the header this takes one line from the appenders. */
bool shmq_log_spin(struct shmq_log *log, uint64_t position, int64_t ns);

/* Sleeps until the wakeup is raised, at most `ns`: SHMQ_OK, TIMED_OUT, INTERRUPTED. */
int shmq_stream_sleep(struct shmq_stream *stream, uint32_t wakeup, int64_t ns);

/* Says that an appender is about to sleep until there is room: it tries once more after it,
 * then waits until room may have come, at most `ns`; as shmq_stream_sleep. */
uint32_t shmq_log_room(struct shmq_log *log);
int shmq_log_wait_room(struct shmq_log *log, uint32_t room, int64_t ns);
void shmq_log_wake_room(struct shmq_log *log);

/* The persistence writer's: all before `offset` is on disk; or its disk failed. */
void shmq_log_mark_synced(struct shmq_log *log, uint64_t offset);
void shmq_log_fail(struct shmq_log *log, uint32_t error);

/* Waits until all before `offset` is on disk, at most `ns`: SHMQ_OK, TIMED_OUT, INTERRUPTED,
 * DELETED; BUSY: the disk fails. */
int shmq_log_wait_synced(struct shmq_log *log, uint64_t offset, int64_t ns);

/* ---- inlines ---- */

static inline uint64_t shmq_log_committed(const struct shmq_log *log)
{
    return atomic_load_explicit(&log->h->committed, memory_order_acquire);
}

static inline uint64_t shmq_log_oldest(const struct shmq_log *log)
{
    return atomic_load_explicit(&log->h->oldest, memory_order_acquire);
}

static inline unsigned char *shmq_log_byte(const struct shmq_log *log, uint64_t position)
{
    return log->ring + position % log->ring_bytes;
}

#define SHMQ_LINE 64u    /* bytes that go from cache to cache together                  */
#define SHMQ_AHEAD 1024u /* bytes that are asked for in advance of a walk               */

/* Asks for the line at `at`, to write there; it may be anywhere. */
static inline void shmq_prefetch_to_write(const void *at)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)at));
#else
    __builtin_prefetch(at, 1);
#endif
}

/* A position, and where in the ring that is: a walk keeps both, as the division that would
 * tell takes longer than all else of a step. */
struct shmq_log_spot {
    uint64_t position, at;
};

static inline struct shmq_log_spot shmq_log_spot(const struct shmq_log *log, uint64_t position)
{
    return (struct shmq_log_spot){position, position % log->ring_bytes};
}

/* Over `bytes` that do not go beyond the ring's end. */
static inline void shmq_log_pass(const struct shmq_log *log, struct shmq_log_spot *spot,
                                 uint64_t bytes)
{
    spot->position += bytes;
    spot->at += bytes;
    if (spot->at == log->ring_bytes)
        spot->at = 0;
}

/* What lies at `spot`, a pad skipped: false if nothing sound is there before `end`. Nothing of
 * `g` may be believed before shmq_log_holds has said so. */
static inline bool shmq_log_look(const struct shmq_log *log, struct shmq_log_spot *spot,
                                 uint64_t end, struct shmq_peeked_entry *g)
{
    for (int pads = 0; spot->position < end && pads < 2; pads++) {
        uint64_t left = log->ring_bytes - spot->at;

        shmq_entry_peek(log->ring + spot->at, left, g);
        if (g->size)
            return g->size >= SHMQ_ENTRY_HEAD && g->size <= left && g->count &&
                   g->size <= end - spot->position && g->type == SHMQ_R_ENTRY;
        shmq_log_pass(log, spot, left);
    }
    return false;
}

/* The same for who goes a few steps. */
static inline bool shmq_log_step(const struct shmq_log *log, uint64_t *position, uint64_t end,
                                 struct shmq_peeked_entry *g)
{
    struct shmq_log_spot spot = shmq_log_spot(log, *position);
    bool sound = shmq_log_look(log, &spot, end, g);

    *position = spot.position;
    return sound;
}

#endif
