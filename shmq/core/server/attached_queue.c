#include "server/attached_queue.h"

#include <stdlib.h>

#include "queue/lock.h"
#include "server/durable_reply.h"
#include "queue/wakeup_post.h"
#include "server/connection.h"
#include "queue/wait.h"
#include "server/lease_table.h"
#include "server/waiters.h"

#define MS 1000000ll
#define LOCK_MOST (2 * MS)    /* that this thread waits for a lock                         */
#define PARK_MOST (100 * MS)  /* that a request waits for one, before it is refused        */
#define RETRY_EVERY (3 * MS)
#define TEND_EVERY 50000000ll /* ns: as often as a blocking wait looks for the dead */
#define MOST_EMPTY_SEATS 64

static bool is_of_a_name(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == ':' || c == '-';
}

bool shmq_read_name(struct shmq_reader *r, struct shmq_name *name)
{
    name->bytes = shmq_read16(r);
    name->at = shmq_read_bytes(r, name->bytes);
    if (r->bad || name->bytes < 1 || name->bytes > SHMQ_NAME_MAX)
        return false;
    for (uint16_t i = 0; i < name->bytes; i++)
        if (!is_of_a_name(name->at[i]))
            return false;
    return true;
}

/* FNV-1a: http://www.isthe.com/chongo/tech/comp/fnv/ */
static struct shmq_desk **bucket_of(struct shmq_front *front, struct shmq_name name)
{
    uint32_t hash = 2166136261u;

    for (uint16_t i = 0; i < name.bytes; i++)
        hash = (hash ^ name.at[i]) * 16777619u;
    return &front->buckets[(hash ^ hash >> 16) % SHMQ_BUCKETS];
}

static struct shmq_name name_of(const struct shmq_desk *desk)
{
    return (struct shmq_name){(const unsigned char *)desk->name, desk->name_bytes};
}

static bool is_called(const struct shmq_desk *desk, struct shmq_name name)
{
    return shmq_same_name(name_of(desk), name);
}

static bool is_open(const struct shmq_desk *desk)
{
    return !desk->gone &&
           atomic_load_explicit(&desk->q->h->state, memory_order_relaxed) == SHMQ_OPEN;
}

/* ---- desks ---- */

static void dismantle(struct shmq_desk *desk)
{
    desk->front->hooks->detach(desk->front, desk);
    free(desk->tenures);
    free(desk->owed);
    free(desk);
}

static uint16_t attach(struct shmq_session *session, struct shmq_desk *desk)
{
    struct shmq_front *front = session->front;
    uint16_t status = front->hooks->attach(session, desk);

    if (status)
        return status;
    desk->tenures = calloc(desk->q->capacity, sizeof *desk->tenures);
    if (desk->tenures)
        return SHMQ_S_OK;
    front->hooks->detach(front, desk);
    return SHMQ_S_INTERNAL;
}

static struct shmq_desk *open_desk(struct shmq_session *session, struct shmq_name name,
                                   uint16_t *status)
{
    struct shmq_front *front = session->front;
    struct shmq_desk **bucket = bucket_of(front, name), *desk;

    for (desk = *bucket; desk; desk = desk->next)
        if (is_called(desk, name))
            break;
    if (desk && is_open(desk))
        return desk;
    if (desk)
        (void)shmq_desk_status(desk, SHMQ_DELETED);
    if (!(desk = calloc(1, sizeof *desk))) {
        *status = SHMQ_S_INTERNAL;
        return NULL;
    }
    desk->front = front;
    desk->name_bytes = (uint8_t)name.bytes;
    memcpy(desk->name, name.at, name.bytes);
    if ((*status = attach(session, desk))) {
        free(desk);
        return NULL;
    }
    desk->next = *bucket;
    *bucket = desk;
    return desk;
}

void shmq_desk_release(struct shmq_desk *desk)
{
    if (--desk->users)
        return;
    desk->unused_at = shmq_coarse_now();
    if (desk->gone && !desk->touched)
        dismantle(desk);
}

void shmq_desk_touch(struct shmq_desk *desk)
{
    if (desk->touched || desk->gone)
        return;
    desk->touched = true;
    desk->users++;
    desk->next_touched = desk->front->touched;
    desk->front->touched = desk;
}

void shmq_desk_forget(struct shmq_desk *desk, uint16_t status)
{
    struct shmq_desk **at = bucket_of(desk->front, name_of(desk));

    if (desk->gone)
        return;
    while (*at != desk)
        at = &(*at)->next;
    *at = desk->next;
    desk->gone = true;
    desk->users++;
    shmq_waiters_end(desk, status);
    shmq_promises_end(desk, status);
    shmq_tenures_void(desk);
    shmq_desk_release(desk);
}

/* ---- the lock ---- */

void shmq_desk_later(struct shmq_desk *desk)
{
    struct shmq_front *front = desk->front;
    int64_t at = shmq_coarse_now() + RETRY_EVERY;

    if (at < front->retry_at)
        front->retry_at = at;
    if (desk->pending)
        return;
    desk->pending = true;
    desk->users++;
    desk->next_pending = front->pending;
    front->pending = desk;
}

static void note_lock(struct shmq_desk *desk, int status)
{
    if (__builtin_expect(status == SHMQ_BUSY, 0)) {
        if (!desk->held_since)
            desk->held_since = shmq_coarse_now();
        shmq_desk_later(desk);
    } else if (__builtin_expect(desk->held_since != 0, 0)) {
        desk->held_since = 0;
    }
}

int shmq_desk_lock(struct shmq_desk *desk, bool whole)
{
    int status = whole ? shmq_lock(desk->q) : shmq_lock_gets(desk->q);

    if (status == SHMQ_BUSY && !desk->held_since)
        status = shmq_lock_slowly(desk->q, LOCK_MOST);
    note_lock(desk, status);
    return status;
}

static int lock_even_deleted(struct shmq_desk *desk)
{
    int status = shmq_lock_even_deleted(desk->q, desk->held_since ? 0 : LOCK_MOST);

    note_lock(desk, status);
    return status;
}

bool shmq_desk_is_awaited(const struct shmq_desk *desk)
{
    return desk->held_since && shmq_coarse_now() - desk->held_since < PARK_MOST;
}

static void release_lock(struct shmq_desk *desk)
{
    uint32_t post[2];

    shmq_unlock(desk->q, post);
    shmq_post(desk->semaphores, post);
    if (shmq_must_ring(desk->q))
        shmq_ring(desk->q);
}

void shmq_desk_unlock(struct shmq_desk *desk)
{
    release_lock(desk);
    if (desk->q->look_for_dead || desk->q->h->dying.head != SHMQ_NIL)
        shmq_desk_touch(desk);
}

void shmq_desk_unlock_puts(struct shmq_desk *desk)
{
    int status;

    if (!shmq_unlock_puts(desk->q))
        return;
    status = shmq_desk_lock(desk, true);
    if (status == SHMQ_OK)
        shmq_desk_unlock(desk);
    desk->owes_posts = desk->owes_posts || status == SHMQ_BUSY;
}

uint16_t shmq_desk_status(struct shmq_desk *desk, int status)
{
    switch (status) {
    case SHMQ_OK: return SHMQ_S_OK;
    case SHMQ_FULL: return SHMQ_S_QUEUE_FULL;
    case SHMQ_EMPTY: return SHMQ_S_QUEUE_EMPTY;
    case SHMQ_TOO_LARGE: return SHMQ_S_TOO_LARGE;
    case SHMQ_STALE: return SHMQ_S_LEASE_EXPIRED;
    case SHMQ_DUPLICATE: return SHMQ_S_DUPLICATE;
    case SHMQ_NO_SPACE: return SHMQ_S_NO_SPACE;
    case SHMQ_BUSY: return SHMQ_S_BUSY;
    case SHMQ_DELETED: shmq_desk_forget(desk, SHMQ_S_NO_QUEUE); return SHMQ_S_NO_QUEUE;
    case SHMQ_DAMAGED:
        desk->front->hooks->failed(desk);
        shmq_desk_forget(desk, SHMQ_S_INTERNAL);
        return SHMQ_S_INTERNAL;
    default: return SHMQ_S_INTERNAL;
    }
}

bool shmq_desk_tend(struct shmq_desk *desk)
{
    int64_t now = shmq_coarse_now();

    if (desk->gone || now - desk->tended_at < TEND_EVERY)
        return false;
    desk->tended_at = now;
    desk->q->look_for_dead = true;
    desk->front->hooks->tend(desk);
    return true;
}

/* Holds the lock. */
static void unpin(struct shmq_desk *desk, uint32_t slot)
{
    shmq_unpin(desk->q, slot);
    --*desk->views;
}

void shmq_parcel_gone(struct shmq_parcel *parcel)
{
    struct shmq_desk *desk = parcel->desk;
    int status = lock_even_deleted(desk);

    if (status == SHMQ_OK) { /* else the queue is damaged: nothing of it is used again */
        unpin(desk, parcel->slot);
        release_lock(desk);
    } else if (status == SHMQ_BUSY) {
        shmq_desk_owe(desk, SHMQ_UNPIN_IT, parcel->slot);
    }
    shmq_desk_release(desk);
}

/* ---- what waits for the lock ---- */

void shmq_desk_owe(struct shmq_desk *desk, enum shmq_deed deed, uint64_t what)
{
    uint32_t room = desk->owed_room ? 2 * desk->owed_room : 16;
    struct shmq_owed *owed = desk->owed;

    shmq_desk_later(desk);
    if (desk->owed_count == desk->owed_room) {
        if (!(owed = realloc(owed, room * sizeof *owed)))
            return; /* the visibility timeout, or the end of this process, does it */
        desk->owed = owed;
        desk->owed_room = room;
    }
    owed[desk->owed_count++] = (struct shmq_owed){deed, what};
}

/* Holds the lock. */
static void do_deed(struct shmq_desk *desk, const struct shmq_owed *owed, int64_t now)
{
    if (owed->deed == SHMQ_UNPIN_IT)
        unpin(desk, (uint32_t)owed->what);
    else if (desk->q->h->state != SHMQ_OPEN)
        return;
    else if (owed->deed == SHMQ_RETURN_IT)
        (void)shmq_return(desk->q, owed->what, now);
    else if (owed->deed == SHMQ_RETURN_UNSEEN)
        (void)shmq_return_unseen(desk->q, owed->what, now);
    else
        (void)shmq_abandon(desk->q, owed->what);
}

/* Up to SHMQ_RUN of what is owed, the last first: whether the lock could be had, or is of no
 * use any more. */
static bool do_some(struct shmq_desk *desk)
{
    int64_t now = shmq_now();
    int status = lock_even_deleted(desk);

    if (status == SHMQ_BUSY)
        return false;
    desk->owes_posts = false;
    if (status != SHMQ_OK) {
        desk->owed_count = 0;
        return true;
    }
    for (uint32_t i = 0; i < SHMQ_RUN && desk->owed_count; i++)
        do_deed(desk, &desk->owed[--desk->owed_count], now);
    shmq_desk_unlock(desk);
    return true;
}

static void unpark_all(struct shmq_desk *desk)
{
    for (struct shmq_session *s = desk->front->sessions; s; s = s->next)
        if (s->parked && s->parked_at == desk)
            shmq_unpark(s);
}

/* What waited for the lock goes on, and so does whoever waits for messages; requests that have
 * waited for long enough are carried out, too: they are refused. */
static void retry(struct shmq_desk *desk)
{
    bool free = true;

    if (desk->held_since || desk->owed_count || desk->owes_posts)
        do
            free = do_some(desk);
        while (free && desk->owed_count);
    if (free)
        shmq_desk_touch(desk);
    else
        shmq_desk_later(desk);
    if (shmq_desk_is_awaited(desk))
        return;
    unpark_all(desk);
    if (!free)
        shmq_waiters_refuse(desk);
}

void shmq_desks_retry(struct shmq_front *front)
{
    struct shmq_desk *desk = front->pending, *next;

    front->pending = NULL;
    front->retry_at = INT64_MAX;
    for (; desk; desk = next) {
        next = desk->next_pending;
        desk->pending = false;
        retry(desk);
        shmq_desk_release(desk);
    }
}

void shmq_desks_give_up(struct shmq_front *front)
{
    while (front->pending) {
        struct shmq_desk *desk = front->pending;

        front->pending = desk->next_pending;
        desk->pending = false;
        shmq_desk_release(desk);
    }
}

/* ---- seats ---- */

static void leave(struct shmq_seat *seat)
{
    struct shmq_desk *desk = seat->desk;

    free(seat);
    shmq_desk_release(desk);
}

void shmq_seats_leave(struct shmq_session *session)
{
    while (session->seats) {
        struct shmq_seat *seat = session->seats;

        session->seats = seat->next;
        leave(seat);
    }
}

static bool is_idle(const struct shmq_seat *seat)
{
    const struct shmq_filling *filling = &seat->session->filling;

    return !seat->count && !seat->waiters && !(filling->active && filling->seat == seat);
}

/* Whether the seat need not be kept: its queue is gone, or there are many such. */
static bool is_dispensable(const struct shmq_seat *seat, uint32_t *idle)
{
    return is_idle(seat) && (seat->desk->gone || ++*idle > MOST_EMPTY_SEATS);
}

/* The seat of that name, moved to the front; seats that are of no more use are left. */
static struct shmq_seat *find_seat(struct shmq_session *session, struct shmq_name name)
{
    struct shmq_seat **at = &session->seats, *seat;
    uint32_t idle = 0;

    while ((seat = *at)) {
        if (is_called(seat->desk, name) && is_open(seat->desk)) {
            *at = seat->next;
            seat->next = session->seats;
            return session->seats = seat;
        }
        if (is_dispensable(seat, &idle)) {
            *at = seat->next;
            leave(seat);
        } else {
            at = &seat->next;
        }
    }
    return NULL;
}

static struct shmq_seat *take_seat(struct shmq_session *session, struct shmq_desk *desk)
{
    struct shmq_seat *seat = calloc(1, sizeof *seat);

    if (!seat)
        return NULL;
    seat->desk = desk;
    seat->session = session;
    seat->first = seat->last = SHMQ_NIL;
    seat->next = session->seats;
    session->seats = seat;
    desk->users++;
    return seat;
}

static uint8_t ask_rights(struct shmq_session *session, struct shmq_name name)
{
    char text[SHMQ_NAME_MAX + 1] = {0};

    memcpy(text, name.at, name.bytes);
    return session->front->hooks->rights(session, text);
}

struct shmq_seat *shmq_seat_at(struct shmq_session *session, struct shmq_name name,
                               uint16_t *status)
{
    struct shmq_seat *seat = session->seats;
    struct shmq_desk *desk;
    uint8_t rights;

    if (!seat || !is_called(seat->desk, name) || !is_open(seat->desk))
        seat = find_seat(session, name);
    if (seat && seat->rights != SHMQ_NOT_ASKED) {
        *status = SHMQ_S_OK;
        return seat;
    }
    *status = SHMQ_S_NO_QUEUE;
    if (!(rights = ask_rights(session, name)))
        return NULL;
    if (!seat && !(desk = open_desk(session, name, status)))
        return NULL;
    if (!seat && !(seat = take_seat(session, desk))) {
        *status = SHMQ_S_INTERNAL;
        return NULL;
    }
    seat->rights = rights;
    *status = SHMQ_S_OK;
    return seat;
}
