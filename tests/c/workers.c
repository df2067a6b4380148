#define _GNU_SOURCE
#include "workers.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "queue/segment.h"
#include "base/clock.h"
#include "queue/put_ring.h"
#include "file/change_scan.h"
#include "queue/lock.h"
#include "file/record.h"
#include "queue/recover.h"
#include "queue/wait.h"
#include "queue/index.h"

#define SLICE 50000000ll /* ns */
#define SPIN 2000ll      /* ns */
#define AHEAD 4

struct letter {
    uint32_t number;
    unsigned char fill[60];
};

struct workers *workers_new(uint32_t deaths)
{
    struct workers *c = mmap(NULL, sizeof *c, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                             -1, 0);

    CHECK(c != MAP_FAILED);
    CHECK(!sem_init(&c->semaphores[0], 1, 0) && !sem_init(&c->semaphores[1], 1, 0));
    c->deaths = deaths;
    return c;
}

void workers_free(struct workers *c) { (void)munmap(c, sizeof *c); }

void workers_lock(struct shmq_queue *q)
{
    int status = shmq_lock(q);

    while (status == SHMQ_BUSY)
        status = shmq_lock_slowly(q, SLICE);
    CHECK_EQ(status, SHMQ_OK);
}

void workers_lock_gets(struct shmq_queue *q)
{
    int status = shmq_lock_gets(q);

    if (status == SHMQ_BUSY)
        workers_lock(q);
    else
        CHECK_EQ(status, SHMQ_OK);
}

void workers_unlock(struct shmq_queue *q, struct workers *c)
{
    uint32_t post[2];

    shmq_unlock(q, post);
    for (int event = 0; event < 2; event++)
        for (uint32_t i = 0; i < post[event]; i++)
            CHECK(!sem_post(&c->semaphores[event]));
}

/* Waits, having been counted in by shmq_fall_asleep. */
static void sleep_on(struct shmq_queue *q, struct workers *c, enum shmq_event event)
{
    int status, left = 0;

    (void)shmq_spin(q, event, SPIN, SPIN);
    status = shmq_sleep(&c->semaphores[event], SLICE);
    workers_lock(q);
    CHECK(!sem_getvalue(&c->semaphores[event], &left));
    shmq_wake_up(q, event, status == SHMQ_OK, left);
    workers_unlock(q, c);
}

static void perhaps_die(struct workers *c, struct chance *chance)
{
    if (c->deaths && !chance_below(chance, c->deaths))
        raise(SIGKILL);
}

/* ---- producing ---- */

static void write_letter(struct letter *letter, uint32_t number)
{
    letter->number = number;
    memset(letter->fill, (int)(number & 0xFF), sizeof letter->fill);
}

/* `body` may begin at any byte, as it does in a record. */
static void check_letter(const void *body)
{
    struct letter letter;

    memcpy(&letter, body, sizeof letter);
    CHECK(letter.number < WORKERS_MESSAGES);
    for (size_t at = 0; at < sizeof letter.fill; at++)
        CHECK_EQ(letter.fill[at], letter.number & 0xFF);
}

/* A sixth in groups: of one priority, so that the order within is that of the puts. A sixth
 * is put without the lock of the gets. */
static struct shmq_put put_of(uint32_t number, struct letter *letter)
{
    struct shmq_put put = {.body = letter, .body_bytes = sizeof *letter};

    put.priority = (uint8_t)(number % 3);
    if (put.priority == 1 && number / 3 % 2)
        put.group = 1 + number / 6 % WORKERS_GROUPS;
    return put;
}

/* Counted before the lock is let go: whoever dies holding it has put no message twice. */
static int put_quickly(struct shmq_queue *q, struct workers *c, struct chance *chance,
                       uint32_t producer, uint32_t number)
{
    struct letter letter;
    struct shmq_put put = put_of(number, &letter);
    uint64_t seq;
    int status;

    write_letter(&letter, number);
    if (shmq_lock_puts(q) != SHMQ_OK)
        return SHMQ_BUSY;
    status = shmq_quick_put(q, &put, shmq_now(), &seq);
    if (status == SHMQ_OK)
        atomic_store(&c->put[producer], number % WORKERS_EACH + 1);
    perhaps_die(c, chance);
    if (shmq_unlock_puts(q)) {
        workers_lock(q);
        workers_unlock(q, c);
    }
    return status;
}

static int put_whole(struct shmq_queue *q, struct workers *c, uint32_t number)
{
    struct letter letter;
    struct shmq_put put = put_of(number, &letter);
    uint64_t seq;
    int status;

    write_letter(&letter, number);
    workers_lock(q);
    status = shmq_put(q, &put, shmq_now(), &seq);
    if (status == SHMQ_FULL)
        shmq_fall_asleep(q, SHMQ_NOT_FULL);
    workers_unlock(q, c);
    return status;
}

/* Writes the body without the lock. */
static int put_in_steps(struct shmq_queue *q, struct workers *c, struct chance *chance,
                        uint32_t number)
{
    struct shmq_put put = put_of(number, NULL);
    struct shmq_view view;
    uint64_t seq;
    int status;

    workers_lock(q);
    status = shmq_reserve(q, put.body_bytes, 0, shmq_now(), NULL, &view, &seq);
    if (status == SHMQ_FULL)
        shmq_fall_asleep(q, SHMQ_NOT_FULL);
    workers_unlock(q, c);
    if (status != SHMQ_OK)
        return status;
    write_letter((struct letter *)view.body, number);
    perhaps_die(c, chance);
    workers_lock(q);
    status = shmq_fill(q, view.receipt, &put, shmq_now(), &seq);
    workers_unlock(q, c);
    return status;
}

void workers_produce(struct shmq_queue *q, struct workers *c, uint32_t producer, uint64_t seed)
{
    struct chance chance = chance_from(seed);
    uint32_t put;

    while ((put = atomic_load(&c->put[producer])) < WORKERS_EACH) {
        uint32_t number = producer * WORKERS_EACH + put;
        int status = put_quickly(q, c, &chance, producer, number);

        if (status == SHMQ_BUSY)
            status = number % 2 ? put_whole(q, c, number) : put_in_steps(q, c, &chance, number);
        if (status == SHMQ_FULL) {
            sleep_on(q, c, SHMQ_NOT_FULL);
            continue;
        }
        CHECK_EQ(status, SHMQ_OK);
        atomic_store(&c->put[producer], put + 1);
    }
}

/* ---- consuming ---- */

static bool all_done(struct workers *c) { return atomic_load(&c->acked) >= WORKERS_MESSAGES; }

/* The same, once every slot is SPENT or FREE: an acknowledgement without the lock counts before its
 * slot is set free, and the journal's writer is told with that. */
static bool all_settled(struct shmq_queue *q, struct workers *c)
{
    bool settled;

    if (!all_done(c))
        return false;
    workers_lock(q);
    settled = !q->h->leased;
    workers_unlock(q, c);
    return settled;
}

/* Leases up to AHEAD messages as not handed out yet; falls asleep if there is none. */
static int lease_some(struct shmq_queue *q, struct workers *c, struct chance *chance,
                      struct shmq_view *views)
{
    int count = 0;

    for (bool whole = false; !count; whole = true) {
        if (whole)
            workers_lock(q);
        else
            workers_lock_gets(q);
        while (count < AHEAD && shmq_lease(q, shmq_now(), false, &views[count]) == SHMQ_OK)
            count++;
        perhaps_die(c, chance);
        if (!count && whole)
            shmq_fall_asleep(q, SHMQ_NOT_EMPTY);
        workers_unlock(q, c);
        if (whole)
            break;
    }
    return count;
}

/* One of a group at a time, in the order of their puts. The dead leave marks behind. */
static void begin_group(struct workers *c, const struct shmq_view *view)
{
    if (!view->group || c->deaths)
        return;
    CHECK_EQ(atomic_exchange(&c->flying[view->group - 1], 1), 0);
    CHECK(atomic_load(&c->last[view->group - 1]) < view->seq);
}

static void end_group(struct workers *c, const struct shmq_view *view, bool acked)
{
    if (!view->group || c->deaths)
        return;
    if (acked)
        atomic_store(&c->last[view->group - 1], view->seq);
    CHECK_EQ(atomic_exchange(&c->flying[view->group - 1], 0), 1);
}

static void look_at(struct shmq_queue *q, struct workers *c, const struct shmq_view *view,
                    bool pinning)
{
    struct shmq_view pinned;
    int status = SHMQ_STALE;

    if (pinning) {
        workers_lock(q);
        status = shmq_pin(q, view->receipt, shmq_now(), &pinned);
        CHECK(status == SHMQ_OK || status == SHMQ_BUSY);
        workers_unlock(q, c);
    }
    check_letter(view->body);
    CHECK(shmq_holds(q, view->receipt, shmq_now()));
    if (status == SHMQ_OK) {
        workers_lock(q);
        shmq_unpin(q, view->at);
        workers_unlock(q, c);
    }
}

static void count(struct workers *c, uint32_t number)
{
    atomic_fetch_add(&c->times[number], 1);
    atomic_fetch_add(&c->acked, 1);
}

static void acknowledge(struct shmq_queue *q, struct workers *c, struct chance *chance,
                        const struct shmq_view *view, uint32_t number)
{
    perhaps_die(c, chance);
    workers_lock_gets(q);
    CHECK_EQ(shmq_ack(q, view->receipt, shmq_now()), SHMQ_OK);
    count(c, number);
    perhaps_die(c, chance);
    workers_unlock(q, c);
}

/* Without the lock; the message is set free afterwards, if no recovery has done so. */
static void acknowledge_first(struct shmq_queue *q, struct workers *c, struct chance *chance,
                              const struct shmq_view *view, uint32_t number)
{
    int status;

    CHECK_EQ(shmq_mark_acked(q, view->receipt, shmq_now()), SHMQ_OK);
    count(c, number);
    perhaps_die(c, chance);
    workers_lock_gets(q);
    status = shmq_finish(q, view->receipt);
    CHECK(status == SHMQ_OK || (status == SHMQ_STALE && (c->deaths || c->recovers)));
    workers_unlock(q, c);
    CHECK_EQ(shmq_mark_acked(q, view->receipt, shmq_now()), SHMQ_STALE);
}

static void give_back(struct shmq_queue *q, struct workers *c, const struct shmq_view *view,
                      bool nack)
{
    workers_lock_gets(q);
    CHECK_EQ(nack ? shmq_nack(q, view->receipt, 0, shmq_now())
                  : shmq_return(q, view->receipt, shmq_now()),
             SHMQ_OK);
    workers_unlock(q, c);
}

static void handle_one(struct shmq_queue *q, struct workers *c, struct chance *chance,
                       const struct shmq_view *view)
{
    uint64_t fate = chance_below(chance, 10);
    uint32_t number;

    begin_group(c, view);
    CHECK_EQ(shmq_hand(q, view->receipt, shmq_now()), SHMQ_OK);
    look_at(q, c, view, fate % 2 == 0);
    number = ((const struct letter *)view->body)->number;
    end_group(c, view, fate >= 2); /* before it is settled: then the next may fly */
    if (fate < 2)
        give_back(q, c, view, fate == 0);
    else if (fate < 6)
        acknowledge_first(q, c, chance, view, number);
    else
        acknowledge(q, c, chance, view, number);
}

void workers_consume(struct shmq_queue *q, struct workers *c, uint64_t seed)
{
    struct chance chance = chance_from(seed);
    struct shmq_view views[AHEAD];

    while (!all_done(c)) {
        int count = lease_some(q, c, &chance, views);

        for (int i = 0; i < count; i++)
            handle_one(q, c, &chance, &views[i]);
        if (!count)
            sleep_on(q, c, SHMQ_NOT_EMPTY);
    }
}

/* ---- looking on ---- */

void workers_peek(struct shmq_queue *q, struct workers *c, uint64_t seed)
{
    struct chance chance = chance_from(seed);

    while (!all_done(c)) {
        uint32_t at = (uint32_t)chance_below(&chance, q->h->options.capacity);
        struct shmq_view view = {0};
        struct shmq_slot *s;
        int status = SHMQ_STALE;

        workers_lock(q);
        if ((s = shmq_slot_named(q, at)))
            status = shmq_pin_at(q, at, s->seq, &view);
        workers_unlock(q, c);
        if (status != SHMQ_OK)
            continue;
        check_letter(view.body);
        workers_lock(q);
        shmq_unpin(q, at);
        workers_unlock(q, c);
    }
}

/* ---- passing by ---- */

static bool lease_for_long(struct shmq_queue *q, struct workers *c, struct shmq_view *view)
{
    bool leased;

    workers_lock(q);
    leased = shmq_lease(q, shmq_now(), true, view) == SHMQ_OK;
    workers_unlock(q, c);
    if (!leased)
        return false;
    workers_lock(q);
    CHECK_EQ(shmq_extend(q, view->receipt, 3600 * SECOND, shmq_now()), SHMQ_OK);
    workers_unlock(q, c);
    return true;
}

static void pass_by_once(struct shmq_queue *q, struct workers *c, struct chance *chance,
                         uint64_t process)
{
    struct shmq_view view;

    workers_lock(q);
    CHECK_EQ(shmq_attach(q, process, 1, "passing by"), SHMQ_OK);
    workers_unlock(q, c);
    if (lease_for_long(q, c, &view) && chance_below(chance, 2))
        give_back(q, c, &view, true);
    workers_lock(q);
    if (c->recovers && process % 4 == 0)
        CHECK_EQ(shmq_recover(q), SHMQ_OK);
    shmq_reclaim(q, q->attachment, process, shmq_now());
    q->attachment = SHMQ_NIL;
    workers_unlock(q, c);
}

void workers_pass_by(struct shmq_queue *q, struct workers *c, uint64_t seed)
{
    struct chance chance = chance_from(seed);
    uint64_t process = 1000;

    do
        pass_by_once(q, c, &chance, process++);
    while (!all_done(c));
}

/* ---- the end ---- */

/* ---- the persistence writer ---- */

#define SHELF (1u << 20)

/* A queue's messages that were put, and not settled, in the journal; by sequence number. */
struct shelf {
    bool has[WORKERS_MESSAGES + 1];
    unsigned char bytes[SHELF];
};

static void put_on(struct shelf *shelf, const struct shmq_record *r)
{
    CHECK(r->seq <= WORKERS_MESSAGES && r->body_bytes == sizeof(struct letter));
    check_letter(r->body);
    shelf->has[r->seq] = true;
}

static void read_batch(struct shelf *shelf, size_t size)
{
    struct shmq_record r;

    for (size_t at = 0, next; at < size; at += next) {
        CHECK_EQ(shmq_record_read(shelf->bytes + at, size - at, 9, true, &r, &next), SHMQ_READ_OK);
        if (r.type == SHMQ_R_PUT)
            put_on(shelf, &r);
        for (uint32_t i = 0; r.type == SHMQ_R_SETTLE && i < r.count; i++)
            shelf->has[shmq_record_settled(&r, i)] = false;
        CHECK(r.type != SHMQ_R_UPDATE || shelf->has[r.seq]);
    }
}

/* One batch; or, of a writer that is killed before it is synced, none. */
static void write_batch(struct shmq_change_scan *f, struct workers *c, struct shelf *shelf,
                        bool dies)
{
    struct shmq_out out = {shelf->bytes, shelf->bytes + SHELF};
    bool more = true;

    CHECK_EQ(shmq_collect(f, &out, 9), SHMQ_OK);
    if (dies)
        return;
    read_batch(shelf, (size_t)(out.at - shelf->bytes));
    shmq_mark_synced(f, 1, 1, 1);
    while (more) {
        workers_lock(f->q);
        more = shmq_release(f, 16);
        workers_unlock(f->q, c);
    }
}

void workers_follow(struct shmq_queue *q, struct workers *c, uint64_t seed)
{
    struct chance chance = chance_from(seed);
    struct shelf *shelf = calloc(1, sizeof *shelf);
    struct shmq_change_scan f;
    bool last = false;

    CHECK(shelf != NULL);
    shmq_scan_begin(&f, q);
    while (!last) {
        bool dies = !chance_below(&chance, 20);

        last = all_settled(q, c);
        (void)shmq_await_changes(&f, SLICE, (int64_t)chance_below(&chance, 200000), 0, 0);
        write_batch(&f, c, shelf, dies && !last);
        if (dies && !last) {
            shmq_scan_end(&f);
            shmq_scan_begin(&f, q);
            shmq_disclaim(&f);
        }
    }
    shmq_scan_end(&f);
    CHECK_EQ(shmq_synced(q), WORKERS_MESSAGES);
    for (uint32_t seq = 0; seq <= WORKERS_MESSAGES; seq++)
        CHECK(!shelf->has[seq]);
    free(shelf);
}

void workers_verify(struct shmq_queue *q, struct workers *c)
{
    workers_lock(q);
    CHECK_WELL(q);
    CHECK_EQ(q->h->live, 0);
    CHECK_EQ(q->h->leased, 0);
    CHECK_EQ(q->h->asleep[0] + q->h->asleep[1], 0);
    CHECK_EQ(q->h->last_seq, WORKERS_MESSAGES);
    CHECK_EQ(atomic_load(&c->acked), WORKERS_MESSAGES);
    for (uint32_t number = 0; number < WORKERS_MESSAGES; number++)
        CHECK_EQ(atomic_load(&c->times[number]), 1);
}
