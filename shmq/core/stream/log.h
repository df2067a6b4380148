/* A process's handle of one partition of a stream, and its operations.
 *
 * A handle is private memory: the mapping, and pointers to its regions. Appenders take the
 * partition's lock; readers take none. */
#ifndef SHMQ_STREAM_LOG_H
#define SHMQ_STREAM_LOG_H

#include "base/clock.h"
#include "base/shared_memory.h"
#include "base/status.h"
#include "stream/entry.h"
#include "stream/layout.h"

/* In addition to enum shmq_status. */
enum shmq_log_status {
    SHMQ_OUT_OF_RANGE = 64, /* the record is gone, or the offset beyond the next        */
    SHMQ_GAP,               /* a producer's sequence numbers do not continue its last    */
    SHMQ_MALFORMED,         /* bytes from outside are not a block of entries            */
    SHMQ_SEALED,            /* the partition accepts no more records                    */
};

/* A position, its place in the ring's memory, and the places from which and up to which entries can
 * follow each other there: a walk keeps them, because the division that computes them takes longer
 * than the rest of a step. */
struct shmq_log_spot {
    uint64_t position, at, start, end;
};

struct shmq_log {
    struct shmq_log_header *h;
    struct shmq_hold *holds;
    struct shmq_produced *producers;
    struct shmq_index_entry *index;
    unsigned char *ring;
    uint64_t first_bytes;   /* private copies: they bound every index; of the first ring */
    uint64_t half;
    uint64_t index_count;
    _Atomic uint32_t *wanted; /* the stream's alterations                               */
    uint32_t salt;
    bool blocks, durable;
    const struct shmq_process *self; /* this process in the namespace, for the lock     */
    int fd;                 /* to back the segment with memory                          */
    struct shmq_stream *stream; /* its wakeup is for waiting readers; NULL: none wait   */
    const char *wakeup_prefix; /* of the paths of the namespace's wakeups; NULL: no loop waits */
    struct shmq_log_spot tail; /* behind this handle's last append of values alone,      */
    uint32_t tail_settings; /* and the settings that it was computed with               */
    uint64_t refused_bytes; /* with NO_SPACE: the bytes that were not available         */
};

struct shmq_log_geometry {
    uint64_t holds, producers, index, ring, segment_bytes, half, index_count;
};

/* ---- log.c: making a segment, and deciding whether one may be trusted ---- */

void shmq_log_lay_out(const struct shmq_log_options *options, struct shmq_log_geometry *geo);

/* The most memory that a partition with these options takes before an alteration. */
uint64_t shmq_log_most_bytes(const struct shmq_log_options *options);
void shmq_log_bind(struct shmq_log *log, void *base, int fd, const struct shmq_log_geometry *geo,
                   const struct shmq_log_options *options, struct shmq_stream *stream,
                   const struct shmq_process *self);

/* Makes an empty partition in a zeroed segment whose first page is mapped; `last_seen` is the lower
 * limit of all times in it. SHMQ_OK, NO_SPACE. */
int shmq_log_prepare(struct shmq_log *log, const struct shmq_log_options *options,
                     int64_t last_seen);
void shmq_log_announce(struct shmq_log *log);

/* Like shmq_inspect: SHMQ_OK, NOT_READY, INCOMPATIBLE, TRUNCATED or DAMAGED. */
int shmq_log_inspect(const void *base, uint64_t mapped, struct shmq_log_geometry *geo);

/* The same for the control segment, whose first page is mapped. */
void shmq_stream_prepare(struct shmq_stream *stream, const struct shmq_log_options *options);
void shmq_stream_announce(struct shmq_stream *stream);
int shmq_stream_inspect(const void *base, uint64_t mapped);

/* How many partitions there are, and the first that takes records. It changes only under the
 * registry lock: `next_shape` first, then the seals, then `shape`. So a process that finds the
 * first two different continues where a dead one stopped. */
uint64_t shmq_stream_shape(const struct shmq_stream *stream);

/* The shape to come if a change has begun, else 0. Must be checked by shmq_stream_is_shape before
 * use. */
uint64_t shmq_stream_next_shape(const struct shmq_stream *stream);
bool shmq_stream_is_shape(const struct shmq_stream *stream, uint64_t shape);
void shmq_stream_intend(struct shmq_stream *stream, uint64_t shape);
void shmq_stream_reshape(struct shmq_stream *stream, uint64_t shape);

/* Ensures: bytes [offset, offset + size) of the segment have memory. */
int shmq_log_back(struct shmq_log *log, uint64_t offset, uint64_t size);

/* ---- stream/settings.c: the options of now, and what follows from them ---- */

/* The options that a segment was laid out with become those of its greatest size. */
void shmq_log_greatest(struct shmq_log_options *options);

/* The ring's size with these options; the most bytes of one entry. */
uint64_t shmq_log_ring_of(const struct shmq_log_options *options);
uint64_t shmq_log_most_entry(const struct shmq_log_options *options);

/* Copies the stream's options of now, and how many alterations led to them; false: damaged. */
bool shmq_stream_read(const struct shmq_stream *stream, struct shmq_log_options *options,
                      uint32_t *alterations);

/* Makes these the stream's options; a death at any store leaves the old ones or the new. Each
 * partition follows when its lock is taken next. Under the registry lock. */
void shmq_stream_alter(struct shmq_stream *stream, const struct shmq_log_options *options);

/* Stores the settings that follow from the options alone. */
void shmq_log_set(struct shmq_log_settings *settings, const struct shmq_log_options *options);

/* ---- stream/alter.c ---- */

/* Makes the stream's options of now those of the partition, as one store. If its ring cannot grow
 * yet, as a loan is in the way, nothing changes. Holds the lock. */
void shmq_log_apply(struct shmq_log *log);

/* ---- stream/lock.c ---- */

/* Takes the lock after spinning, and waiting up to `ns` in the kernel; a wait of 1 ms or more that
 * fails has examined the holder, and so has one of less than 0, which does not wait: SHMQ_OK, BUSY,
 * DELETED (not held then), DAMAGED, UNREGISTERED. Repairs what a dead holder left before it returns. */
int shmq_log_lock(struct shmq_log *log, int64_t ns);

/* The number of the process that holds the lock; 0 if none. */
uint64_t shmq_log_holder(const struct shmq_log *log);
void shmq_log_unlock(struct shmq_log *log);

/* Derives the state from the entries behind `settled` again. Holds the lock. */
int shmq_log_recover(struct shmq_log *log);

/* ---- stream/append.c ---- */

struct shmq_log_item {
    const void *value, *key, *headers;
    uint32_t value_bytes, key_bytes, headers_bytes;
    uint8_t flags, codec, compression; /* flags: only SHMQ_E_KEYED                      */
    uint32_t count, raw;
    int64_t timestamp;    /* ns since 1970; 0: that of the piece                        */
};

/* A place in the ring in which the value of a record is written before it is appended. */
struct shmq_log_loan {
    uint64_t owner;       /* the process to lend it to                                  */
    unsigned char *value; /* the value's bytes; NULL: the place is to be lent           */
    uint32_t hold;        /* its hold                                                   */
    bool keep;            /* the loan does not end with the append                      */
};

struct shmq_log_piece {
    struct shmq_log_loan *loan; /* of the single item, which has no value; or NULL      */
    const struct shmq_log_item *items;
    uint32_t count;       /* of items; at least 1                                       */
    int64_t timestamp;    /* ns since 1970; 0: now, but not before the last one seen    */
    bool produced;        /* it has a producer and its first record's sequence          */
    bool gaps;            /* the sequences may jump forward                             */
    uint64_t producer, sequence;
};

struct shmq_log_appended {
    uint64_t first;       /* UINT64_MAX: of a duplicate that is gone                    */
    uint64_t records;
    int64_t timestamp;    /* of the last record                                         */
    uint64_t expected;    /* for GAP: the next sequence                                 */
    bool duplicate;
    bool skipped;         /* it left out a loan: see whether the borrower lives         */
};

/* A value alone: without a key, headers, a codec, a timestamp or a producer. */
struct shmq_log_value {
    const void *bytes;
    uint32_t size;
};

/* The short path for values that the stream's options allow: appends them in one step if `size`, the
 * sum of their entries' sizes, fits before the end of the ring, and there is room. False: none was
 * appended; shmq_log_append can do it, or tells why not. Holds the lock. */
bool shmq_log_append_values(struct shmq_log *log, const struct shmq_log_value *values,
                            uint32_t count, uint64_t size, struct shmq_log_appended *out);

/* Appends all items in one step, or lends or appends the piece's loan: readers see all of them, or none. SHMQ_OK, FULL (records may
 * not be removed, or not yet), TOO_LARGE, NO_SPACE, GAP, SEALED, DAMAGED. Holds the lock. */
int shmq_log_append(struct shmq_log *log, const struct shmq_log_piece *piece,
                    struct shmq_log_appended *out);

/* ---- retention.c ---- */

/* The last place before a position where the ring wrapped, and the bytes of the pad there. */
struct shmq_log_wrap {
    uint64_t position, pad;
};

/* Ensures: the ring has room from `committed` to `end`, and memory. Beyond retention_bytes it
 * removes entries, but keeps at least nine tenths of that. Holds the lock. */
int shmq_log_make_room(struct shmq_log *log, uint64_t end, const struct shmq_log_wrap *wrap);

/* Ensures: the next append of that many bytes, with a producer, finds memory, even behind a place
 * that is lent meanwhile. Holds the lock; SHMQ_NO_SPACE. */
int shmq_log_reserve(struct shmq_log *log, uint64_t bytes);

/* Gives the table of producers its memory. This comes before a producer's records are published, so
 * that they are always remembered. SHMQ_NO_SPACE. */
int shmq_log_back_producers(struct shmq_log *log);

/* Removes records older than the stream's retention. Holds the lock. */
void shmq_log_expire(struct shmq_log *log);

/* Whether shmq_log_expire has anything to do. Without the lock. */
bool shmq_log_is_stale(const struct shmq_log *log);

/* Takes a hold from `offset` on: SHMQ_OK, OUT_OF_RANGE, CROWDED. Holds the lock. */
int shmq_log_hold(struct shmq_log *log, uint32_t kind, uint64_t owner, uint64_t tag,
                  uint64_t offset, uint32_t *at);

/* The same from `position` on, which is not checked; `place` is a loan's. */
int shmq_log_hold_at(struct shmq_log *log, uint32_t kind, uint64_t owner, uint64_t tag,
                     uint64_t position, uint64_t place, uint32_t *at);

/* Moves the hold to a later offset, which may be gone already or still to come. `hint` is as for
 * shmq_log_find. Wakes appenders that wait for room if no other hold is as far behind as it was.
 * Returns false, and moves nothing, if the place holds nothing for a reader of that owner and tag;
 * the caller ensures that such a hold does not end meanwhile, as the place could be taken again. */
bool shmq_log_move(struct shmq_log *log, uint32_t at, uint64_t owner, uint64_t tag, uint64_t offset,
                   uint64_t hint);
void shmq_log_drop(struct shmq_log *log, uint32_t at);

/* ---- stream/index.c ---- */

/* Fills the index up to the entry at `begin`; the entry before that is at `last_begin`. Holds the
 * lock. */
void shmq_log_index(struct shmq_log *log, uint64_t last_begin, uint64_t begin, uint64_t offset,
                    int64_t seen);

/* Removes index entries behind the last entry, which a dead appender wrote. Holds the lock. */
void shmq_log_trim_index(struct shmq_log *log);

/* Where to begin a search: an entry that is not behind the one with `offset`; or one seen before
 * `time`, or the oldest. Without the lock; must be checked afterwards. */
uint64_t shmq_log_near_offset(const struct shmq_log *log, uint64_t oldest, uint64_t committed,
                              uint64_t offset);
uint64_t shmq_log_near_time(const struct shmq_log *log, uint64_t oldest, uint64_t committed,
                            int64_t time);

/* The first indexed entry that begins at or behind `position`; `committed` if there is none. Holds
 * the lock. */
uint64_t shmq_log_indexed_behind(const struct shmq_log *log, uint64_t position);

/* ---- stream/loan.c: records whose values are written in place ---- */

/* Lends a place in the ring for the piece's item, of which only the sizes count, and completes the
 * loan. SHMQ_BUSY: the partition has lent a place already, or lends none; else as shmq_log_append.
 * Holds the lock. */
int shmq_log_lend(struct shmq_log *log, const struct shmq_log_piece *piece);

/* Whether it is the loan that the partition has lent. Holds the lock. */
bool shmq_log_is_lent(const struct shmq_log *log, const struct shmq_log_loan *loan);

/* Ends the loan, if it has not ended. Holds the lock. */
void shmq_log_end_loan(struct shmq_log *log, const struct shmq_log_loan *loan);

/* The place of the open loan; of 0 bytes if there is none. Holds the lock. */
struct shmq_log_place {
    uint64_t at, bytes; /* from the beginning of the ring's memory                       */
};

struct shmq_log_place shmq_log_lent(const struct shmq_log *log);

/* Derives from the holds whether there is a loan. Holds the lock. */
void shmq_log_find_loan(struct shmq_log *log);

/* ---- stream/append.c: producers ---- */

struct shmq_produced *shmq_log_producer(struct shmq_log *log, uint64_t producer);

void shmq_log_remember(struct shmq_log *log, uint64_t producer, uint64_t sequence, uint64_t offset,
                       uint32_t count);

/* The same from files, in a partition that no other process has yet. Once, the producer may
 * continue with any later sequence number; of a piece that is present in part, the rest is
 * appended. */
void shmq_log_restore(struct shmq_log *log, uint64_t producer, uint64_t sequence, uint64_t offset,
                      uint32_t count);

/* ---- stream/read.c ---- */

/* A run of whole entries found in the ring. */
struct shmq_log_extent {
    uint64_t begin, end;    /* positions                                                */
    uint64_t wrap, resume;  /* positions: the pad within it, and the place behind it     */
    uint64_t first, next;   /* offsets: of the first entry, and behind the last         */
    uint64_t bytes;         /* of the entries, without pads                             */
    uint64_t entries;
    int64_t seen;           /* of the first entry                                       */
    bool packed;            /* at least one is compressed                               */
};

struct shmq_log_bounds {
    uint64_t earliest, latest;  /* offsets */
    uint64_t oldest, committed; /* positions */
    int64_t earliest_at, latest_at; /* when they were seen, ns since 1970; 0: empty */
};

/* The bounds of the present records. SHMQ_OK, DAMAGED. */
int shmq_log_bounds(const struct shmq_log *log, struct shmq_log_bounds *bounds);

/* Finds the entries from the one with `offset` on: at most `limit` records beyond `offset` and
 * `most` bytes, but at least one entry; none that begin at or behind offset `end`. `hint`: the
 * position of `offset` from an earlier extent, or UINT64_MAX. SHMQ_OK (without entries: there
 * are none yet), OUT_OF_RANGE, DELETED, DAMAGED. */
int shmq_log_find(const struct shmq_log *log, uint64_t offset, uint64_t end, uint64_t limit,
                  uint64_t most, uint64_t hint, struct shmq_log_extent *extent);

/* Copies the entries to `to`, which has room for `bytes`. False: they have been overwritten, and
 * the copy is invalid. */
bool shmq_log_copy(const struct shmq_log *log, const struct shmq_log_extent *extent, void *to);

/* The entries in place: one piece, or two if the ring wraps; returns how many. */
int shmq_log_pieces(const struct shmq_log *log, const struct shmq_log_extent *extent,
                    const unsigned char *at[2], uint64_t bytes[2]);

/* Whether everything from `position` on is still intact, and was during all earlier reads. */
bool shmq_log_holds(const struct shmq_log *log, uint64_t position);

/* The offset of the first record seen from that time on; `latest` if there is none. */
int shmq_log_at(const struct shmq_log *log, int64_t time, uint64_t *offset);

/* ---- stream/wait.c ---- */

/* Wakes sleeping readers, if any. Without the lock. */
void shmq_log_wake(struct shmq_log *log);

/* Wakes all threads that wait for anything in the partition. */
void shmq_log_wake_all(struct shmq_log *log);

/* Announces that a reader is about to sleep until an append: it must look once more after this.
 * Returns the argument for shmq_stream_sleep. */
uint32_t shmq_log_arm(struct shmq_log *log);

/* Event loops do not sleep on the futex but poll a wakeup (queue/wakeup.h): each has a party in the
 * stream for each of its handles. A new party with wakeup `n` of `process`, this one; SHMQ_NIL: all
 * belong to living processes. */
uint32_t shmq_stream_join(struct shmq_stream *stream, const struct shmq_process *self,
                          uint64_t process, uint32_t n);

/* Announces that the loop is about to wait for the partitions that it arms next (shmq_log_arm): the
 * next append to one of them posts the wakeup, once. */
void shmq_stream_arm(struct shmq_stream *stream, uint32_t party);

/* Whether no process has posted the wakeup since the last shmq_stream_arm, or was about to. */
bool shmq_stream_is_armed(const struct shmq_stream *stream, uint32_t party);
void shmq_stream_leave(struct shmq_stream *stream, uint32_t party);

/* Spins until an entry ends behind `position`, or the partition has ended, for at most `ns`, and
 * after `yield_after` ns lets others run: how long that took, in ns, or -1. See base/spin.h. It
 * takes only one of the header's cache lines from the appenders. */
int64_t shmq_log_spin(struct shmq_log *log, uint64_t position, int64_t ns, int64_t yield_after);

/* Sleeps until the wakeup is raised, at most `ns`: SHMQ_OK, TIMED_OUT, INTERRUPTED. How long a
 * sleep may be is said in queue/wait.h. */
int shmq_stream_sleep(struct shmq_stream *stream, uint32_t wakeup, int64_t ns);

/* Announces that an appender is about to sleep until there is room: it must try once more after
 * this, then it waits at most `ns` until there may be room; otherwise as shmq_stream_sleep. */
uint32_t shmq_log_room(struct shmq_log *log);
int shmq_log_wait_room(struct shmq_log *log, uint32_t room, int64_t ns);
void shmq_log_wake_room(struct shmq_log *log);

/* For the persistence writer: everything before `offset` is on disk; or its disk failed. */
void shmq_log_mark_synced(struct shmq_log *log, uint64_t offset);
void shmq_log_fail(struct shmq_log *log, uint32_t error);

/* The errno with which its disk fails; 0: it works, or the writer that it failed has died, so that
 * nothing is known of the disk. */
uint32_t shmq_log_error(const struct shmq_log *log);

/* Waits at most `ns` until everything before `offset` is on disk: SHMQ_OK, TIMED_OUT, INTERRUPTED,
 * DELETED; BUSY: the disk failed. */
int shmq_log_wait_synced(struct shmq_log *log, uint64_t offset, int64_t ns);

/* Marks the partition as deleted, and wakes waiting threads. */
void shmq_log_delete(struct shmq_log *log);

/* Refuses further appends, and wakes appenders that wait for room. Holds the lock. */
void shmq_log_seal(struct shmq_log *log);

/* ---- inlines ---- */

static inline uint64_t shmq_log_committed(const struct shmq_log *log)
{
    return GET_ACQUIRE(log->h->committed);
}

static inline uint64_t shmq_log_oldest(const struct shmq_log *log)
{
    return GET_ACQUIRE(log->h->oldest);
}

#define SHMQ_LINE 64u    /* size of a cache line                                        */
#define SHMQ_GAPS 4      /* pads and skips between two entries, at most, and one more    */
#define SHMQ_AHEAD 1024u /* bytes that a walk prefetches                                */

/* The settings of now. Without the lock they are another's once two alterations have passed: see
 * shmq_log_altered_spot. */
static inline const struct shmq_log_settings *shmq_log_settings(const struct shmq_log *log)
{
    return &log->h->settings[GET_ACQUIRE(log->h->settings_made) & 1];
}

/* The same once the settings were altered. */
struct shmq_log_spot shmq_log_altered_spot(const struct shmq_log *log, uint64_t position);

/* Where the position is. It must not be behind the end that was read before. */
static inline struct shmq_log_spot shmq_log_spot(const struct shmq_log *log, uint64_t position)
{
    if (__builtin_expect(GET_ACQUIRE(log->h->settings_made) != 0, 0))
        return shmq_log_altered_spot(log, position);
    return (struct shmq_log_spot){position, position % log->first_bytes, 0, log->first_bytes};
}

static inline unsigned char *shmq_log_byte(const struct shmq_log *log, uint64_t position)
{
    return log->ring + shmq_log_spot(log, position).at;
}

static inline uint64_t shmq_log_ring_bytes(const struct shmq_log *log)
{
    return GET_ATOMIC(shmq_log_settings(log)->ring.bytes);
}

/* ns; 0: none. */
static inline int64_t shmq_log_retention(const struct shmq_log *log)
{
    return GET_ATOMIC(shmq_log_settings(log)->retention);
}

/* Whether the place is the ring's beginning where that is not the beginning of all its positions:
 * the ring has wrapped there. */
static inline bool shmq_log_is_wrap(const struct shmq_log *log, const struct shmq_log_spot *spot)
{
    return spot->at == spot->start && spot->position > shmq_log_settings(log)->ring.begin;
}

/* Advances over `bytes` that do not go beyond the ring's end. */
static inline void shmq_log_pass(const struct shmq_log *log, struct shmq_log_spot *spot,
                                 uint64_t bytes)
{
    spot->position += bytes;
    spot->at += bytes;
    if (__builtin_expect(spot->at == spot->end, 0))
        *spot = shmq_log_spot(log, spot->position);
}

/* Skips the gap that `g` is, and those that follow; then as shmq_log_look. */
bool shmq_log_look_on(const struct shmq_log *log, struct shmq_log_spot *spot, uint64_t end,
                      struct shmq_peeked_entry *g);

static inline bool shmq_log_is_gap(const struct shmq_peeked_entry *g)
{
    return !g->size || g->type == SHMQ_R_SKIP;
}

static inline bool shmq_log_is_entry(const struct shmq_log_spot *spot, uint64_t end,
                                     const struct shmq_peeked_entry *g)
{
    return g->size >= SHMQ_ENTRY_HEAD && g->size <= spot->end - spot->at && g->count &&
           g->size <= end - spot->position && g->type == SHMQ_R_ENTRY;
}

/* Reads the entry at `spot`, skipping the pad before the ring's end and the place of a loan: false
 * if there is nothing valid before `end`. The caller must not trust `g` before shmq_log_holds
 * confirms it. */
static inline bool shmq_log_look(const struct shmq_log *log, struct shmq_log_spot *spot,
                                 uint64_t end, struct shmq_peeked_entry *g)
{
    if (spot->position >= end)
        return false;
    shmq_entry_peek(log->ring + spot->at, spot->end - spot->at, g);
    if (__builtin_expect(shmq_log_is_gap(g), 0))
        return shmq_log_look_on(log, spot, end, g);
    return shmq_log_is_entry(spot, end, g);
}

/* The same for a walk of a few steps. */
static inline bool shmq_log_step(const struct shmq_log *log, uint64_t *position, uint64_t end,
                                 struct shmq_peeked_entry *g)
{
    struct shmq_log_spot spot = shmq_log_spot(log, *position);
    bool sound = shmq_log_look(log, &spot, end, g);

    *position = spot.position;
    return sound;
}

#endif
