#define _GNU_SOURCE
#include <sched.h>

#include "base/futex.h"
#include "queue/wait.h"
#include "queue/wakeup.h"
#include "stream/log.h"

/* ---- event loops ---- */

/* Whether the entry is ours now; it was `former`'s, which is dead, or free. The process is stored
 * first: an entry without the right number yet posts a wakeup in vain, or one that is gone. */
static bool takes(struct shmq_stream_party *p, uint64_t former, uint64_t process, uint32_t n)
{
    if (!atomic_compare_exchange_strong(&p->process, &former, process))
        return false;
    shmq_mark();
    SET_RELEASE(p->n, n);
    return true;
}

uint32_t shmq_stream_join(struct shmq_stream *stream, const struct shmq_process *self,
                          uint64_t process, uint32_t n)
{
    uint64_t owner;
    uint32_t party;

    for (party = 0; party < SHMQ_STREAM_PARTIES; party++)
        if (takes(&stream->parties[party], 0, process, n))
            return party;
    for (party = 0; party < SHMQ_STREAM_PARTIES; party++) {
        owner = atomic_load(&stream->parties[party].process);
        if (shmq_has_died(self, owner) && takes(&stream->parties[party], owner, process, n))
            return party;
    }
    return SHMQ_NIL;
}

void shmq_stream_arm(struct shmq_stream *stream, uint32_t party)
{
    atomic_fetch_or(&stream->armed, 1ull << party);
}

bool shmq_stream_is_armed(const struct shmq_stream *stream, uint32_t party)
{
    return atomic_load(&stream->armed) >> party & 1;
}

/* The bit first: the next owner of the entry arms it again. */
void shmq_stream_leave(struct shmq_stream *stream, uint32_t party)
{
    atomic_fetch_and(&stream->armed, ~(1ull << party));
    shmq_mark();
    atomic_store(&stream->parties[party].process, 0);
}

/* Posts the wakeups of the parties that are armed, and of `others`. */
static void wake_loops(const struct shmq_log *log, uint64_t others)
{
    uint64_t parties = atomic_exchange(&log->stream->armed, 0) | others;

    for (; parties && log->wakeup_prefix; parties &= parties - 1) {
        const struct shmq_stream_party *p = &log->stream->parties[__builtin_ctzll(parties)];
        uint64_t process = atomic_load(&p->process);

        if (!process)
            continue;
        shmq_mark();
        shmq_post_named(log->wakeup_prefix, process, GET_ACQUIRE(p->n));
    }
}

static void wake_readers(struct shmq_log *log, uint64_t others)
{
    SET_RELAXED(log->h->armed, 0);
    atomic_fetch_add(&log->stream->wakeup, 1);
    shmq_mark();
    shmq_futex_wake(&log->stream->wakeup);
    wake_loops(log, others);
}

/* ---- records ---- */

/* A reader arms, looks once more, then sleeps; an appender commits, then checks whether a reader
 * has armed: at least one of them sees the other. A waker disarms, so a reader that died asleep
 * costs one futile wakeup. A loop arms its party before the partition: who finds the partition armed
 * finds the party armed. The wakeup of an appender that dies between the two stores is made by the
 * guardians, which wake everyone after a death, or lost until the sleeper's slice ends. */
void shmq_log_wake(struct shmq_log *log)
{
    shmq_fence();
    if (__builtin_expect(!GET_RELAXED(log->h->armed), 1) || !log->stream)
        return;
    wake_readers(log, 0);
}

uint32_t shmq_log_arm(struct shmq_log *log)
{
    uint32_t wakeup = log->stream ? atomic_load(&log->stream->wakeup) : 0;

    SET_RELAXED(log->h->armed, 1);
    shmq_fence();
    return wakeup;
}

int shmq_stream_sleep(struct shmq_stream *stream, uint32_t wakeup, int64_t ns)
{
    return shmq_futex_wait(&stream->wakeup, wakeup, ns > 0 ? ns : 0);
}

#define MOST_PAUSES 16       /* between two looks: less than a microsecond                 */
#define LOOKS 8              /* between two readings of the clock                          */
#define LULL_NS 1000         /* ns without an append, after which the reader reads         */
#define GATHER_NS 8000       /* ns: the longest wait while appends keep coming,            */
#define GATHER_BYTES 32768u  /* and the most bytes                                         */

static void pause_for(int turns)
{
    for (int i = 0; i < turns; i++)
        shmq_pause();
}

/* A reader that keeps up with the appender takes each record's lines and the header's while the
 * next record is written, and the appender waits for them. So records that come in a burst are read
 * together: the reader waits as long as each look finds more than the one before. */
static void gather(const struct shmq_log *log, uint64_t position)
{
    uint64_t had, has = shmq_log_committed(log);
    int64_t now, end;

    if (has - position >= GATHER_BYTES)
        return;
    now = shmq_read_clock(CLOCK_MONOTONIC);
    end = now + GATHER_NS;
    do {
        for (int64_t until = now + LULL_NS; now < until; now = shmq_read_clock(CLOCK_MONOTONIC))
            pause_for(MOST_PAUSES / 4);
        had = has;
        has = shmq_log_committed(log);
    } while (has > had && has - position < GATHER_BYTES && now < end);
}

static bool is_over(const struct shmq_log *log, uint64_t position)
{
    if (shmq_log_committed(log) > position) {
        gather(log, position);
        return true;
    }
    return GET_RELAXED(log->h->state) != SHMQ_OPEN;
}

/* Each look takes the line from the appender, which is about to write there again, so the pauses
 * between looks grow. The clock is read only now and then, because that takes longer than a
 * look. Between two yields there is one look: several readers may share the core. */
int64_t shmq_log_spin(struct shmq_log *log, uint64_t position, int64_t ns, int64_t yield_after)
{
    int64_t start = shmq_read_clock(CLOCK_MONOTONIC), now = start;
    int pauses = 1;

    do {
        bool yields = now - start >= yield_after;

        if (yields)
            (void)sched_yield();
        for (int looks = 0; looks < (yields ? 1 : LOOKS); looks++) {
            if (is_over(log, position))
                return now - start;
            pause_for(pauses);
            pauses = pauses < MOST_PAUSES ? pauses * 2 : MOST_PAUSES;
        }
        now = shmq_read_clock(CLOCK_MONOTONIC);
    } while (now - start < ns);
    return -1;
}

/* ---- room ---- */

uint32_t shmq_log_room(struct shmq_log *log)
{
    uint32_t room = GET_ACQUIRE(log->h->room);

    SET_RELAXED(log->h->crowded, 1);
    shmq_fence();
    return room;
}

int shmq_log_wait_room(struct shmq_log *log, uint32_t room, int64_t ns)
{
    return shmq_futex_wait(&log->h->room, room, ns > 0 ? ns : 0);
}

void shmq_log_wake_room(struct shmq_log *log)
{
    shmq_fence();
    if (!GET_RELAXED(log->h->crowded))
        return;
    SET_RELAXED(log->h->crowded, 0);
    atomic_fetch_add(&log->h->room, 1);
    shmq_mark();
    shmq_futex_wake(&log->h->room);
}

/* ---- the disk ---- */

static void wake_disk(struct shmq_log *log)
{
    atomic_fetch_add(&log->h->disk, 1);
    shmq_mark();
    shmq_futex_wake(&log->h->disk);
}

/* A loop whose bit is cleared was perhaps not posted by a process that died. */
void shmq_log_wake_all(struct shmq_log *log)
{
    if (log->stream)
        wake_readers(log, UINT64_MAX);
    atomic_store_explicit(&log->h->crowded, 1, memory_order_relaxed);
    shmq_log_wake_room(log);
    wake_disk(log);
}

/* The position is stored first: records are never overwritten before they are on disk. */
void shmq_log_mark_synced(struct shmq_log *log, uint64_t offset)
{
    struct shmq_log_extent extent;

    SET_RELAXED(log->h->error, 0);
    if (shmq_log_find(log, offset, UINT64_MAX, 1, 0, UINT64_MAX, &extent) == SHMQ_OK) {
        SET_RELEASE(log->h->synced_position, extent.begin);
    }
    SET_RELEASE(log->h->synced, offset);
    wake_disk(log);
    shmq_log_wake_room(log);
}

/* The failure counts while this process lives: it may not have signed the partition yet. */
void shmq_log_fail(struct shmq_log *log, uint32_t error)
{
    SET_RELAXED(log->h->error, error);
    if (error)
        SET_RELAXED(log->h->writer, atomic_load(&log->self->number));
    wake_disk(log);
}

uint32_t shmq_log_error(const struct shmq_log *log)
{
    uint32_t error = GET_RELAXED(log->h->error);

    return error && !shmq_has_died(log->self, GET_RELAXED(log->h->writer)) ? error : 0;
}

/* The result of the wait, if it is over; else SHMQ_EMPTY. */
static int look_at_disk(struct shmq_log *log, uint64_t offset)
{
    struct shmq_log_header *h = log->h;

    if (GET_ACQUIRE(h->synced) >= offset)
        return SHMQ_OK;
    if (GET_RELAXED(h->state) != SHMQ_OPEN)
        return SHMQ_DELETED;
    return shmq_log_error(log) ? SHMQ_BUSY : SHMQ_EMPTY;
}

int shmq_log_wait_synced(struct shmq_log *log, uint64_t offset, int64_t ns)
{
    struct shmq_log_header *h = log->h;
    uint32_t disk = GET_ACQUIRE(h->disk);
    int status = look_at_disk(log, offset);

    if (status != SHMQ_EMPTY)
        return status;
    if (GET_RELAXED(h->awaited) < offset) {
        SET_RELAXED(h->awaited, offset);
        atomic_store_explicit(&h->armed, 1, memory_order_relaxed);
        shmq_log_wake(log);
    }
    status = shmq_futex_wait(&h->disk, disk, ns < SHMQ_SHORT_SLEEP ? ns : SHMQ_SHORT_SLEEP);
    if (status == SHMQ_INTERRUPTED)
        return status;
    status = look_at_disk(log, offset);
    return status == SHMQ_EMPTY ? SHMQ_TIMED_OUT : status;
}

/* ---- the end of a partition ---- */

void shmq_log_seal(struct shmq_log *log)
{
    SET_RELEASE(log->h->sealed, 1);
    shmq_log_wake_all(log);
}

void shmq_log_delete(struct shmq_log *log)
{
    atomic_store_explicit(&log->h->state, SHMQ_GONE, memory_order_seq_cst);
    shmq_mark();
    shmq_log_wake_all(log);
}
