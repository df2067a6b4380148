/* The journal's two sides: what a follower collects of a queue, when slots of settled messages
 * are set free, and what a restorer makes of the records. */
#include "fixture.h"
#include "registered.h"
#include "file/change_scan.h"
#include "queue/lock.h"
#include "queue/recover.h"
#include "file/record.h"
#include "file/restore.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#define ROOM (1u << 20)
#define MOST 4096

static unsigned char room[ROOM];

#define CHECK_TEXT(got, wanted)                    \
    do {                                           \
        const char *got_ = (got);                  \
        if (strcmp(got_, wanted))                  \
            test_failed(__FILE__, __LINE__, got_); \
    } while (0)

/* A journal as the disk would have it: every record of every batch, one behind the other. */
static unsigned char disk[ROOM];
static size_t disk_bytes;

static struct shmq_queue *new_journaled(uint32_t capacity)
{
    disk_bytes = 0;
    return NEW_QUEUE(.capacity = capacity, .durability = SHMQ_JOURNAL,
                     .dedupe_window = 60 * SECOND);
}

/* Collects into `bytes` of room; what was written stands in `room`. */
static int collect_into(struct shmq_change_scan *f, size_t bytes, size_t *written)
{
    struct shmq_out out = {room, room + bytes};
    int status = shmq_collect(f, &out, 1);

    *written = (size_t)(out.at - room);
    return status;
}

static void mark_synced(struct shmq_change_scan *f, size_t written)
{
    memcpy(disk + disk_bytes, room, written);
    disk_bytes += written;
    shmq_mark_synced(f, 1, disk_bytes, written);
    while (shmq_release(f, 2))
        ;
    CHECK_WELL(f->q);
}

/* Collects, marks as synced and returns what the batch says: "P1 P2 S1 U3 D2", by type and
 * number. */
static const char *sync_all(struct shmq_change_scan *f)
{
    static char text[4096];
    struct shmq_record r;
    size_t at = 0, written, next;
    char *end = text;

    CHECK_EQ(collect_into(f, ROOM, &written), SHMQ_OK);
    *end = 0;
    for (; at < written; at += next) {
        CHECK_EQ(shmq_record_read(room + at, written - at, 1, true, &r, &next), SHMQ_READ_OK);
        for (uint32_t i = 0; i < (r.type == SHMQ_R_SETTLE ? r.count : 1); i++)
            end += sprintf(end, "%s%c%llu", end == text ? "" : " ", " BPSUD"[r.type],
                           (unsigned long long)(r.type == SHMQ_R_SETTLE ? shmq_record_settled(&r, i)
                                                : r.type == SHMQ_R_DEDUPE ? r.count
                                                                          : r.seq));
    }
    mark_synced(f, written);
    return text;
}

static struct shmq_change_scan follow(struct shmq_queue *q)
{
    struct shmq_change_scan f;

    shmq_scan_begin(&f, q);
    return f;
}

static void ack_next(struct shmq_queue *q)
{
    struct shmq_view view = take_next(q);

    CHECK_EQ(shmq_ack(q, view.receipt, now), SHMQ_OK);
}

TEST("every put is collected once in order")
{
    struct shmq_queue *q = new_journaled(8);
    struct shmq_change_scan f = follow(q);

    put_text(q, "one");
    put_text(q, "two");
    CHECK_TEXT(sync_all(&f), "P1 P2");
    CHECK_TEXT(sync_all(&f), "");
    put_text(q, "three");
    CHECK_TEXT(sync_all(&f), "P3");
    CHECK_EQ(q->h->journal.synced, 3);
    shmq_scan_end(&f);
}

TEST("what was acknowledged before it was collected is never written")
{
    struct shmq_queue *q = new_journaled(8);
    struct shmq_change_scan f = follow(q);

    CHECK_TEXT(sync_all(&f), "");
    put_text(q, "one");
    ack_next(q);
    CHECK_EQ(q->h->live, 0);
    CHECK_TEXT(sync_all(&f), "");
    CHECK_EQ(q->h->journal.synced, 1);
    shmq_scan_end(&f);
}

TEST("a logged message that is settled keeps its slot until that is on disk")
{
    struct shmq_queue *q = new_journaled(1);
    struct shmq_change_scan f = follow(q);
    uint64_t seq;
    size_t written;

    put_text(q, "one");
    CHECK_TEXT(sync_all(&f), "P1");
    ack_next(q);
    CHECK_EQ(q->h->spent, 1);
    CHECK_EQ(put_status(q, &(struct shmq_put){.body = "x", .body_bytes = 1}, &seq), SHMQ_FULL);
    CHECK_EQ(collect_into(&f, ROOM, &written), SHMQ_OK);
    CHECK_EQ(put_status(q, &(struct shmq_put){.body = "x", .body_bytes = 1}, &seq), SHMQ_FULL);
    mark_synced(&f, written);
    CHECK_EQ(q->h->spent, 0);
    CHECK_EQ(put_status(q, &(struct shmq_put){.body = "x", .body_bytes = 1}, &seq), SHMQ_OK);
    shmq_scan_end(&f);
}

TEST("without a writer nothing is kept for it")
{
    struct shmq_queue *q = new_journaled(2);

    for (int i = 0; i < 100; i++) {
        put_text(q, "x");
        ack_next(q);
    }
    CHECK_EQ(q->h->live, 0);
    CHECK_WELL(q);
}

TEST("a message that comes back is updated once")
{
    struct shmq_queue *q = new_journaled(8);
    struct shmq_change_scan f = follow(q);

    put_text(q, "one");
    CHECK_TEXT(sync_all(&f), "P1");
    CHECK_EQ(shmq_nack(q, take_next(q).receipt, 5 * SECOND, now), SHMQ_OK);
    CHECK_TEXT(sync_all(&f), "U1");
    CHECK_TEXT(sync_all(&f), "");
    now += 6 * SECOND;
    CHECK_EQ(shmq_return_unseen(q, take_next(q).receipt, 0, now), SHMQ_OK);
    CHECK_TEXT(sync_all(&f), "U1"); /* no longer delayed */
    shmq_scan_end(&f);
}

TEST("hints that were overwritten are made up for")
{
    struct shmq_queue *q = new_journaled(8);
    struct shmq_change_scan f = follow(q);

    put_text(q, "kept");
    for (int i = 0; i < 5000; i++) {
        struct shmq_view kept = take_next(q), view;

        put_text(q, "x");
        view = take_next(q);
        CHECK_EQ(shmq_ack(q, view.receipt, now), SHMQ_OK);
        CHECK_EQ(shmq_return_unseen(q, kept.receipt, 0, now), SHMQ_OK);
    }
    CHECK_TEXT(sync_all(&f), "P1");
    CHECK_EQ(q->h->journal.synced, 5001);
    shmq_scan_end(&f);
}

TEST("hints that a rebuild lost are made up for")
{
    struct shmq_queue *q = new_journaled(8);
    struct shmq_change_scan f = follow(q);

    put_text(q, "one");
    put_text(q, "two");
    CHECK_TEXT(sync_all(&f), "P1 P2");
    ack_next(q);
    put_text(q, "three");
    CHECK_EQ(shmq_recover(q), SHMQ_OK);
    CHECK_WELL(q);
    CHECK_TEXT(sync_all(&f), "S1 P3");
    CHECK_EQ(q->h->live, 2);
    shmq_scan_end(&f);
}

TEST("a purge is told")
{
    struct shmq_queue *q = new_journaled(8);
    struct shmq_change_scan f = follow(q);
    uint64_t removed;

    put_text(q, "one");
    put_text(q, "two");
    CHECK_TEXT(sync_all(&f), "P1 P2");
    put_text(q, "three");
    CHECK_EQ(shmq_purge(q, &removed), SHMQ_OK);
    CHECK_EQ(removed, 3);
    CHECK_WELL(q);
    CHECK_TEXT(sync_all(&f), "S1 S2");
    CHECK_EQ(q->h->live, 0);
    shmq_scan_end(&f);
}

TEST("a batch that has no room for all goes on in the next")
{
    struct shmq_queue *q = new_journaled(64);
    struct shmq_change_scan f = follow(q);
    size_t written;
    uint64_t last = 0;

    for (int i = 0; i < 50; i++)
        put_bytes(q, 100);
    while (collect_into(&f, 500, &written) == SHMQ_FULL) {
        CHECK(written > 0 && written <= 500);
        mark_synced(&f, written);
        CHECK(q->h->journal.synced > last && q->h->journal.synced < 50);
        last = q->h->journal.synced;
    }
    mark_synced(&f, written);
    CHECK_EQ(q->h->journal.synced, 50);
    CHECK_EQ(collect_into(&f, 500, &written), SHMQ_OK);
    CHECK_EQ(written, 0);
    mark_synced(&f, 0);
    put_bytes(q, 1000);
    CHECK_EQ(collect_into(&f, 500, &written), SHMQ_FULL);
    CHECK(f.needed > 1000);
    CHECK_EQ(q->h->journal.synced, 50);
    shmq_scan_end(&f);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* they need memory, too */
TEST("without private memory nothing is collected, and nothing is forgotten")
{
    enum { MANY = 60000 };
    struct shmq_queue *q = new_journaled(MANY);
    struct shmq_change_scan f = follow(q);
    struct rlimit limit, none;
    size_t written;

    put_text(q, "one");
    put_text(q, "two");
    CHECK_TEXT(sync_all(&f), "P1 P2");
    for (int i = 2; i < MANY; i++)
        put_text(q, "");
    ack_next(q);
    CHECK_EQ(collect_into(&f, 0, &written), SHMQ_FULL); /* their list has memory now */
    CHECK_EQ(getrlimit(RLIMIT_AS, &limit), 0);
    none = (struct rlimit){0, limit.rlim_max};
    CHECK_EQ(setrlimit(RLIMIT_AS, &none), 0);
    CHECK_EQ(collect_into(&f, ROOM, &written), SHMQ_NO_SPACE);
    CHECK_EQ(setrlimit(RLIMIT_AS, &limit), 0);
    CHECK_EQ(written, 0);
    CHECK_EQ(q->h->spent, 1);
    while (q->h->journal.synced < MANY) {
        CHECK(collect_into(&f, ROOM, &written) != SHMQ_NO_SPACE);
        shmq_mark_synced(&f, 1, 1, written);
        (void)shmq_release(&f, 1);
    }
    CHECK_EQ(q->h->journal.puts, MANY);
    CHECK_EQ(q->h->journal.settles, 1);
    CHECK_EQ(q->h->spent, 0);
    shmq_scan_end(&f);
}
#endif

TEST("what a dead writer had claimed is claimed again")
{
    struct shmq_queue *q = new_journaled(8);
    struct shmq_change_scan dead = follow(q), f;
    size_t written;

    put_text(q, "one");
    CHECK_TEXT(sync_all(&dead), "P1");
    put_text(q, "two");
    put_text(q, "three");
    CHECK_EQ(collect_into(&dead, ROOM, &written), SHMQ_OK); /* never marked as synced */
    ack_next(q);
    ack_next(q);
    shmq_scan_end(&dead);
    f = follow(q);
    shmq_disclaim(&f);
    CHECK_TEXT(sync_all(&f), "S1 S2 P3");
    CHECK_EQ(q->h->live, 1);
    shmq_scan_end(&f);
}

TEST("what a dead writer may have written is settled in the journal, too")
{
    struct shmq_queue *q = new_journaled(8);
    struct shmq_change_scan dead = follow(q), f;
    size_t written;

    put_text(q, "one");
    put_text(q, "two");
    /* Killed once the position was stored. */
    CHECK_EQ(collect_into(&dead, ROOM, &written), SHMQ_OK);
    shmq_scan_end(&dead);
    f = follow(q);
    shmq_disclaim(&f);
    CHECK_EQ(collect_into(&f, 16, &written), SHMQ_FULL);
    CHECK_EQ(written, 0);
    ack_next(q);
    ack_next(q);
    CHECK_TEXT(sync_all(&f), "S1 S2");
    CHECK_EQ(q->h->live, 0);
    shmq_scan_end(&f);
}

/* ---- moves ---- */

/* Moves the dying message of `source`, as the application's side does it. */
static void bury(struct shmq_queue *source, struct shmq_queue *target, bool commits)
{
    struct shmq_view dead, copy;

    CHECK_EQ(shmq_take_dead(source, &dead), SHMQ_OK);
    copy = reserve(target, dead.body_bytes);
    CHECK_EQ(shmq_stage(target, copy.receipt,
                        &(struct shmq_put){.body_bytes = dead.body_bytes,
                                           .origin_queue = 7,
                                           .origin_seq = dead.seq},
                        now),
             SHMQ_OK);
    CHECK_EQ(shmq_moved(source, dead.receipt), SHMQ_OK);
    if (commits)
        CHECK_EQ(shmq_commit_staged(target, copy.receipt, now), SHMQ_OK);
}

static bool waits(struct shmq_queue *target, uint64_t seq)
{
    bool answer = false;

    shmq_copies_waiting(target, 7, &seq, &answer, 1);
    return answer;
}

TEST("the end of a moved message is held back until its copy is on disk")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8, .durability = SHMQ_JOURNAL, .dead_letters = 1);
    struct shmq_queue *graves = NEW_QUEUE(.capacity = 8, .durability = SHMQ_JOURNAL);
    struct shmq_change_scan f, g;

    disk_bytes = 0;
    q->h->journal.writer = graves->h->journal.writer = PROCESS;
    f = follow(q);
    g = follow(graves);
    put_text(q, "poison");
    CHECK_TEXT(sync_all(&f), "P1");
    CHECK_EQ(shmq_reject(q, take_next(q).receipt, now), SHMQ_OK);
    CHECK_TEXT(sync_all(&f), "U1");
    bury(q, graves, true);
    CHECK_TEXT(sync_all(&f), "");
    CHECK_EQ(f.moved.len, 1);
    CHECK_EQ(q->h->live, 1);
    CHECK(waits(graves, 1));
    CHECK_TEXT(sync_all(&g), "P1");
    CHECK(!waits(graves, 1));
    shmq_arrived(&f, f.moved.at[0].at);
    CHECK_TEXT(sync_all(&f), "S1");
    CHECK_EQ(q->h->live, 0);
    shmq_scan_end(&f);
    shmq_scan_end(&g);
}

TEST("a message that was moved before it was logged is written all the same")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8, .durability = SHMQ_JOURNAL, .dead_letters = 1);
    struct shmq_queue *graves = NEW_QUEUE(.capacity = 8, .durability = SHMQ_JOURNAL);
    struct shmq_change_scan f;

    disk_bytes = 0;
    q->h->journal.writer = PROCESS;
    f = follow(q);
    put_text(q, "poison");
    CHECK_EQ(shmq_reject(q, take_next(q).receipt, now), SHMQ_OK);
    bury(q, graves, false);
    put_text(q, "after");
    CHECK_TEXT(sync_all(&f),
               "P1 P2"); /* or a put of it would be confirmed, and be in memory alone */
    CHECK_EQ(f.moved.len, 1);
    CHECK(waits(graves, 1)); /* staged */
    CHECK_TEXT(sync_all(&f), "");
    shmq_arrived(&f, f.moved.at[0].at);
    CHECK_TEXT(sync_all(&f), "S1");
    CHECK_EQ(q->h->live, 1);
    shmq_scan_end(&f);
}

TEST("so it is where somebody waits for the first writer to come")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8, .durability = SHMQ_JOURNAL, .dead_letters = 1);
    struct shmq_queue *graves = NEW_QUEUE(.capacity = 8, .durability = SHMQ_JOURNAL);
    struct shmq_change_scan f;

    disk_bytes = 0;
    put_text(q, "poison");
    shmq_request_sync(q, 1);
    CHECK_EQ(shmq_reject(q, take_next(q).receipt, now), SHMQ_OK);
    bury(q, graves, true);
    put_text(q, "nobody waits for this one");
    CHECK_EQ(shmq_reject(q, take_next(q).receipt, now), SHMQ_OK);
    bury(q, graves, true);
    CHECK_EQ(q->h->live, 1);
    f = follow(q);
    CHECK_TEXT(sync_all(&f), "P1");
    shmq_scan_end(&f);
}

TEST("a moved message that has arrived before its put was written is not written any more")
{
    static char large[1000];
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8, .durability = SHMQ_JOURNAL, .dead_letters = 1);
    struct shmq_queue *graves = NEW_QUEUE(.capacity = 8, .durability = SHMQ_JOURNAL);
    struct shmq_change_scan f;
    size_t written;
    uint64_t seq;

    disk_bytes = 0;
    q->h->journal.writer = PROCESS;
    f = follow(q);
    CHECK_EQ(put_status(q, &(struct shmq_put){.body = large, .body_bytes = sizeof large}, &seq),
             SHMQ_OK);
    put_text(q, "poison");
    (void)take_next(q);
    CHECK_EQ(shmq_reject(q, take_next(q).receipt, now), SHMQ_OK);
    bury(q, graves, false);
    CHECK_EQ(collect_into(&f, 500, &written), SHMQ_FULL);
    CHECK_EQ(written, 0);
    shmq_arrived(&f, f.moved.at[0].at);
    CHECK_TEXT(sync_all(&f), "S2 P1"); /* and not P2 behind it: it would be back */
    CHECK_EQ(q->h->live, 1);
    shmq_scan_end(&f);
}

TEST("what was held back twice, or is over, is forgotten")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 1, .durability = SHMQ_JOURNAL, .dead_letters = 1);
    struct shmq_queue *graves = NEW_QUEUE(.capacity = 8, .durability = SHMQ_JOURNAL);
    struct shmq_change_scan f;

    disk_bytes = 0;
    q->h->journal.writer = PROCESS;
    f = follow(q);
    put_text(q, "poison");
    CHECK_TEXT(sync_all(&f), "P1");
    CHECK_EQ(shmq_reject(q, take_next(q).receipt, now), SHMQ_OK); /* a hint, */
    bury(q, graves, false);                                       /*   and another one */
    CHECK_TEXT(sync_all(&f), "");
    shmq_arrived(&f, 0);
    CHECK_EQ(f.moved.len, 0);
    shmq_lose_hints(q); /* every slot is looked at, this one too */
    CHECK_TEXT(sync_all(&f), "S1");
    put_text(q, "poison too");
    CHECK_EQ(shmq_reject(q, take_next(q).receipt, now), SHMQ_OK);
    CHECK_EQ(shmq_held_back(&f), 0); /* this one is dead, and nowhere else yet */
    shmq_scan_end(&f);
}

/* Whoever settles a message commits SPENT for a moment, even if the slot is free at once. */
TEST("a slot that was seen in passing is not set free for another message")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 1, .durability = SHMQ_JOURNAL, .dead_letters = 1);
    struct shmq_queue *graves = NEW_QUEUE(.capacity = 8, .durability = SHMQ_JOURNAL);
    struct shmq_change_scan f;
    uint64_t receipt, word;
    size_t written;

    disk_bytes = 0;
    q->h->journal.writer = PROCESS;
    f = follow(q);
    put_text(q, "one");
    receipt = take_next(q).receipt;
    word = shmq_word(&q->slots[0]);
    shmq_commit(&q->slots[0], shmq_make_word(SHMQ_SPENT, 0, 0, shmq_serial_of(word)));
    CHECK_EQ(collect_into(&f, ROOM, &written), SHMQ_OK);
    CHECK_EQ(written, 0);
    shmq_commit(&q->slots[0], word);
    CHECK_EQ(shmq_ack(q, receipt, now), SHMQ_OK);
    CHECK_EQ(q->h->live, 0);
    put_text(q, "two");
    CHECK_EQ(shmq_reject(q, take_next(q).receipt, now), SHMQ_OK);
    bury(q, graves, false);
    CHECK_EQ(q->h->spent, 1);
    mark_synced(&f, 0);
    CHECK_EQ(q->h->spent, 1);
    CHECK_TEXT(sync_all(&f), "P2");
    shmq_scan_end(&f);
}

TEST("a copy that was voided leaves no trace")
{
    struct shmq_queue *q = new_journaled(8);
    struct shmq_view copy = reserve(q, 4);
    struct shmq_change_scan f = follow(q);

    CHECK_EQ(shmq_stage(q, copy.receipt,
                        &(struct shmq_put){.body_bytes = 4, .origin_queue = 9, .origin_seq = 5},
                        now),
             SHMQ_OK);
    CHECK_EQ(shmq_abandon(q, copy.receipt), SHMQ_OK);
    put_bytes(q, 4);
    CHECK_EQ(q->slots[0].origin_queue, 0);
    CHECK_TEXT(sync_all(&f), "P1");
    shmq_scan_end(&f);
}

/* ---- waiting ---- */

static void put_copy(struct shmq_queue *q)
{
    struct shmq_view copy = reserve(q, 4);

    CHECK_EQ(shmq_stage(q, copy.receipt,
                        &(struct shmq_put){.body_bytes = 4, .origin_queue = 9, .origin_seq = 2},
                        now),
             SHMQ_OK);
    CHECK_EQ(shmq_commit_staged(q, copy.receipt, now), SHMQ_OK);
    CHECK_EQ(q->slots[0].origin_queue, 9);
}

TEST("what comes into the slot of a copy is none")
{
    struct shmq_queue *q = new_journaled(1);
    struct shmq_change_scan f = follow(q);

    put_copy(q);
    CHECK_TEXT(sync_all(&f), "P1");
    ack_next(q);
    CHECK_EQ(q->slots[0].origin_queue, 9); /* until its settlement is written */
    CHECK_TEXT(sync_all(&f), "S1");
    put_text(q, "own");
    CHECK_EQ(q->slots[0].origin_queue, 0);
    ack_next(q);
    put_copy(q);
    ack_next(q); /* before it was logged */
    put_text(q, "own");
    CHECK_EQ(q->slots[0].origin_queue, 0);
    ack_next(q);
    put_copy(q);
    shmq_commit(&q->slots[0], shmq_make_word(SHMQ_ACKED, 0, 0, 1));
    CHECK_EQ(shmq_recover(q), SHMQ_OK);
    CHECK_EQ(q->h->live, 0);
    put_text(q, "own");
    CHECK_EQ(q->slots[0].origin_queue, 0);
    shmq_scan_end(&f);
}

TEST("the writer waits for what it is woken for")
{
    struct shmq_queue *q = new_journaled(8);
    struct shmq_change_scan f = follow(q);

    CHECK_TEXT(sync_all(&f), "");
    CHECK_EQ(shmq_await_changes(&f, 1000000, 0, 0, 0), SHMQ_TIMED_OUT);
    put_text(q, "one");
    CHECK_EQ(shmq_await_changes(&f, SECOND, 1000, 0, 0), SHMQ_OK);
    CHECK_EQ(shmq_await_changes(&f, 1000000, SECOND, 0, 0), SHMQ_TIMED_OUT); /* it lingers */
    shmq_request_sync(q, 1);
    CHECK_EQ(shmq_await_changes(&f, SECOND, SECOND, 0, 0), SHMQ_OK);
    CHECK_EQ(shmq_wait_synced(q, 1, 1000000), SHMQ_TIMED_OUT);
    CHECK_TEXT(sync_all(&f), "P1");
    CHECK_EQ(shmq_wait_synced(q, 1, SECOND), SHMQ_OK);
    CHECK_EQ(shmq_await_changes(&f, 1000000, SECOND, 0, 0), SHMQ_TIMED_OUT);
    shmq_wake_scan(&f);
    CHECK_EQ(shmq_await_changes(&f, SECOND, SECOND, 0, 0), SHMQ_OK);
    q->h->journal.writer = q->self->number;
    shmq_fail(q, 28);
    CHECK_EQ(shmq_wait_synced(q, 2, SECOND), SHMQ_NO_SPACE);
    q->h->journal.writer = dead_number(); /* its disk may have room again */
    CHECK_EQ(shmq_wait_synced(q, 2, 1000000), SHMQ_TIMED_OUT);
    shmq_scan_end(&f);
}

#define CROWD 64u

struct waiter {
    struct shmq_queue *q;
    uint64_t seq;
};

static void *wait_for_the_disk(void *given)
{
    const struct waiter *waiter = given;

    CHECK_EQ(shmq_wait_synced(waiter->q, waiter->seq, 60 * SECOND), SHMQ_OK);
    return NULL;
}

TEST("one commit serves all threads that wait for a number in it")
{
    struct shmq_queue *q = new_journaled(CROWD);
    struct shmq_change_scan f = follow(q);
    struct waiter waiters[CROWD];
    pthread_t threads[CROWD];

    CHECK_TEXT(sync_all(&f), "");
    for (uint32_t i = 0; i < CROWD; i++) {
        put_text(q, "one");
        waiters[i] = (struct waiter){q, i + 1};
        CHECK_EQ(pthread_create(&threads[i], NULL, wait_for_the_disk, &waiters[i]), 0);
    }
    CHECK_EQ(shmq_await_changes(&f, 60 * SECOND, 60 * SECOND, 0, 0), SHMQ_OK);
    (void)sync_all(&f);
    for (uint32_t i = 0; i < CROWD; i++)
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
    CHECK_EQ(q->h->journal.commits, 1);
    shmq_scan_end(&f);
}

TEST("a commit wakes each number that it has, and few of those behind it")
{
    for (uint64_t after = 0; after < 1200; after += 7)
        for (uint64_t count = 1; count < 600; count += 13) {
            uint32_t bits = shmq_wakeup_bits(after, after + count);

            for (uint64_t seq = after + 1; seq <= after + count; seq++)
                CHECK(bits & shmq_wakeup_bit(seq));
            for (uint64_t seq = after + count + SHMQ_NUMBERS_A_BIT;
                 seq < after + 30 * SHMQ_NUMBERS_A_BIT; seq++)
                CHECK(!(bits & shmq_wakeup_bit(seq)));
        }
}

/* ---- restoring ---- */

struct kept {
    struct shmq_record r;
    bool is;
};

/* What the records on `disk` amount to, in order of sequence numbers. */
static uint32_t replay(struct kept *kept)
{
    struct shmq_record r;
    size_t at = 0, next;
    uint32_t count = 0;

    memset(kept, 0, MOST * sizeof *kept);
    for (; at < disk_bytes; at += next) {
        CHECK_EQ(shmq_record_read(disk + at, disk_bytes - at, 1, true, &r, &next), SHMQ_READ_OK);
        if (r.type == SHMQ_R_PUT)
            kept[r.seq] = (struct kept){r, true};
        for (uint32_t i = 0; r.type == SHMQ_R_SETTLE && i < r.count; i++)
            kept[shmq_record_settled(&r, i)].is = false;
        if (r.type != SHMQ_R_UPDATE)
            continue;
        CHECK(kept[r.seq].is);
        kept[r.seq].r.deliveries = r.deliveries;
        kept[r.seq].r.flags = (uint8_t)((kept[r.seq].r.flags & ~SHMQ_R_UPDATABLE) | r.flags);
        kept[r.seq].r.until = r.until;
        kept[r.seq].r.dead_at = r.dead_at;
        kept[r.seq].r.reason = r.reason;
    }
    for (uint32_t seq = 0; seq < MOST; seq++)
        count += kept[seq].is;
    return count;
}

static struct shmq_queue *restored(const struct shmq_options *options)
{
    static struct kept kept[MOST];
    struct shmq_queue *q = new_queue(options);
    struct shmq_restorer r = {.q = q, .now = now, .wall = shmq_wall(), .logged = true};
    const uint64_t totals[SHMQ_TOTALS] = {0};

    replay(kept);
    for (uint32_t seq = 0; seq < MOST; seq++)
        if (kept[seq].is)
            CHECK_EQ(shmq_restore(&r, &kept[seq].r), SHMQ_OK);
    shmq_restore_end(&r, 1000, totals, 5, 6, 7);
    CHECK_WELL(q);
    return q;
}

TEST("a restored queue is as it was")
{
    const struct shmq_options options = {
        .capacity = 32, .durability = SHMQ_JOURNAL, .dead_letters = 1};
    struct shmq_queue *q = new_queue(&options), *again;
    struct shmq_change_scan f;
    struct shmq_view view;

    disk_bytes = 0;
    f = follow(q);
    PUT(q, .body = "low", .body_bytes = 3, .priority = 0);
    PUT(q, .body = "high", .body_bytes = 4, .priority = 2);
    PUT(q, .body = "a1", .body_bytes = 2, .priority = 1, .group = 5);
    PUT(q, .body = "a2", .body_bytes = 2, .priority = 1, .group = 5);
    PUT(q, .body = "late", .body_bytes = 4, .priority = 1, .delay = 100 * SECOND);
    PUT(q, .body = "short", .body_bytes = 5, .priority = 1, .ttl = 50 * SECOND);
    PUT(q, .body = "dead", .body_bytes = 4, .priority = 2, .meta = "m", .meta_bytes = 1);
    CHECK_TEXT(sync_all(&f), "P1 P2 P3 P4 P5 P6 P7");
    CHECK_EQ(take_next(q).seq, 2); /* leased for good */
    CHECK_EQ(shmq_reject(q, take_next(q).receipt, now), SHMQ_OK);
    CHECK_EQ(shmq_nack(q, take_next(q).receipt, 10 * SECOND, now), SHMQ_OK); /* a1 holds a2 */
    sync_all(&f);
    shmq_scan_end(&f);

    again = restored(&options);
    CHECK_EQ(again->h->last_seq, 1000);
    CHECK_EQ(again->h->dead, 1);
    CHECK_EQ(again->h->delayed, 2);
    view = take_next(again);
    CHECK(view.seq == 2 && body_is(&view, "high"));
    CHECK_EQ(take_next(again).seq, 6);
    CHECK_EQ(take_next(again).seq, 1);
    CHECK_EQ(next_seq(again), 0);
    now += 11 * SECOND;
    view = take_next(again);
    CHECK(view.seq == 3 && view.deliveries == 2 && body_is(&view, "a1"));
    CHECK_EQ(next_seq(again), 0);
    CHECK_EQ(shmq_ack(again, view.receipt, now), SHMQ_OK);
    CHECK_EQ(take_next(again).seq, 4);
    now += 95 * SECOND;
    CHECK_EQ(take_next(again).seq, 2); /* its lease is over */
    CHECK_EQ(put_text(again, "new"), 1001);
    CHECK_WELL(again);
}

TEST("what is restored counts as logged")
{
    const struct shmq_options options = {.capacity = 8, .durability = SHMQ_JOURNAL};
    struct shmq_queue *q = new_queue(&options);
    struct shmq_change_scan f;

    disk_bytes = 0;
    f = follow(q);
    put_text(q, "one");
    sync_all(&f);
    shmq_scan_end(&f);
    q = restored(&options);
    f = follow(q);
    CHECK_TEXT(sync_all(&f), "");
    ack_next(q);
    CHECK_TEXT(sync_all(&f), "S1");
    shmq_scan_end(&f);
}

TEST("what cannot be restored is refused")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 1, .arena_bytes = 4096);
    struct shmq_restorer r = {.q = q, .now = now, .wall = shmq_wall()};
    struct shmq_record record = {.type = SHMQ_R_PUT, .seq = 5, .body = room, .body_bytes = 10};

    record.priority = 3;
    CHECK_EQ(shmq_restore(&r, &record), SHMQ_STALE);
    record.priority = 1;
    record.body_bytes = 4096 * SHMQ_GROWTH + 1;
    CHECK_EQ(shmq_restore(&r, &record), SHMQ_TOO_LARGE);
    record.body_bytes = 10;
    CHECK_EQ(shmq_restore(&r, &record), SHMQ_OK);
    CHECK_EQ(shmq_restore(&r, &record), SHMQ_STALE);
    while (record.seq++, shmq_restore(&r, &record) == SHMQ_OK)
        ;
    CHECK_EQ(record.seq, 5 + SHMQ_GROWTH);
    CHECK_EQ(shmq_restore(&r, &record), SHMQ_FULL);
    CHECK_WELL(q);
}

TEST("a queue that is restored gets as large as its messages, if its files do not know of that yet")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4, .arena_bytes = 4096);
    struct shmq_restorer r = {.q = q, .now = now, .wall = shmq_wall()};
    struct shmq_record record = {.type = SHMQ_R_PUT, .body = room, .body_bytes = 1024};

    while (record.seq++ < 9)
        CHECK_EQ(shmq_restore(&r, &record), SHMQ_OK);
    CHECK_EQ(shmq_capacity(q), 16);
    CHECK_EQ(shmq_units(q) * SHMQ_UNIT, 4 * 4096);
    CHECK_WELL(q);
}

/* ---- at random ---- */

/* Puts, settlements, deaths inside and syncs in any order: what is on disk is always what the
 * queue holds, as of the last sync. */
TEST("the disk has what the queue has")
{
    static struct kept kept[MOST];
    uint32_t live;

    for (uint32_t seed = 1; seed <= 60; seed++) {
        struct shmq_queue *q = new_journaled(1 + seed % 40);
        struct shmq_change_scan f = follow(q);
        uint64_t receipts[64], seq;
        uint32_t held = 0;

        struct chance chance = chance_from(seed);
        for (int step = 0; step < 600 && q->h->last_seq < MOST - 1; step++) {
            struct shmq_put put = {.body = "body",
                                   .body_bytes = (uint64_t)(chance_below(&chance, 4)),
                                   .priority = (uint8_t)(chance_below(&chance, 3)),
                                   .group = chance_below(&chance, 3) ? 0 : 9};
            struct shmq_view view;

            switch (chance_below(&chance, 8)) {
            case 0:
            case 1:
            case 2: (void)put_status(q, &put, &seq); break;
            case 3:
            case 4:
                if (held < 64 && shmq_lease(q, now, true, &view) == SHMQ_OK)
                    receipts[held++] = view.receipt;
                break;
            case 5:
                if (held && chance_below(&chance, 4))
                    (void)shmq_ack(q, receipts[--held], now);
                else if (held)
                    (void)shmq_nack(q, receipts[--held], chance_below(&chance, 2) * SECOND, now);
                break;
            case 6:
                if (chance_below(&chance, 10) == 0)
                    CHECK_EQ(shmq_recover(q), SHMQ_OK);
                now += SECOND;
                break;
            default: sync_all(&f);
            }
        }
        sync_all(&f);
        CHECK_EQ(q->h->spent, 0);
        live = replay(kept);
        CHECK_EQ(live, q->h->live);
        for (uint32_t at = 0; at < q->h->slots_made; at++)
            if (state_at(q, at) != SHMQ_FREE)
                CHECK(kept[q->slots[at].seq].is);
        shmq_scan_end(&f);
        release_everything();
    }
}
