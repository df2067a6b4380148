#define _GNU_SOURCE
#include "queue/wakeup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/descriptor.h"
#include "queue/index.h"
#include "queue/wait.h"
#include "queue/transition.h"

static void set_armed(struct shmq_header *h, enum shmq_event event, uint64_t armed)
{
    SET_RELEASE(h->armed[event], armed);
}

static void clear(struct shmq_header *h, uint32_t party)
{
    for (int event = 0; event < 2; event++)
        if (shmq_armed(h, event) >> party & 1)
            set_armed(h, event, shmq_armed(h, event) & ~(1ull << party));
}

/* ---- the party's side ---- */

/* The value of `n` in its entry. */
static uint32_t entry_of(const struct shmq_watch *w)
{
    return w->filtered ? w->n | SHMQ_FILTERED : w->n;
}

static bool is_ours(const struct shmq_queue *q, uint32_t party, uint64_t process, uint32_t n)
{
    const struct shmq_party *p = &q->h->parties[party];

    return p->process == process && p->n == n && p->attachment == q->attachment + 1;
}

/* Our entry, or a free one, or SHMQ_NIL. */
static uint32_t party_for(const struct shmq_queue *q, uint64_t process, uint32_t n)
{
    uint32_t vacant = SHMQ_NIL;

    for (uint32_t party = SHMQ_PARTIES; party-- > 0;) {
        if (is_ours(q, party, process, n))
            return party;
        if (!q->h->parties[party].process)
            vacant = party;
    }
    return vacant;
}

int shmq_arm(struct shmq_queue *q, struct shmq_watch *w, uint64_t process)
{
    struct shmq_party *p;

    if (w->party >= SHMQ_PARTIES || !is_ours(q, w->party, process, entry_of(w)))
        w->party = party_for(q, process, entry_of(w));
    if (w->party == SHMQ_NIL)
        return SHMQ_CROWDED;
    p = &q->h->parties[w->party];
    if (!p->process) {
        SET_ATOMIC(p->n, entry_of(w));
        SET_ATOMIC(p->attachment, q->attachment + 1);
        SET_ATOMIC(p->process, process);
    }
    set_armed(q->h, w->event, shmq_armed(q->h, w->event) | 1ull << w->party);
    return SHMQ_OK;
}

void shmq_disarm(struct shmq_queue *q, const struct shmq_watch *w)
{
    SET(q->h->alarm, INT64_MAX);
    if (w->party >= SHMQ_PARTIES)
        return;
    if (shmq_armed(q->h, w->event) >> w->party & 1 &&
        q->h->parties[w->party].attachment == q->attachment + 1 &&
        q->h->parties[w->party].n == entry_of(w))
        set_armed(q->h, w->event, shmq_armed(q->h, w->event) & ~(1ull << w->party));
    else if (shmq_looks_roomy(q, 1))
        shmq_pass_on(q, w->event);
}

bool shmq_is_woken(const struct shmq_queue *q, const struct shmq_watch *w, bool closely)
{
    const struct shmq_header *h = q->h;

    if (GET_RELAXED(q->h->state) != SHMQ_OPEN)
        return true;
    if (w->party < SHMQ_PARTIES && !(shmq_armed(h, w->event) >> w->party & 1))
        return true;
    if (!closely)
        return false;
    if (w->filtered) /* it has seen what is in the order, if it could arm */
        return w->party >= SHMQ_PARTIES || shmq_inbox_count(h);
    return w->event == SHMQ_NOT_EMPTY ? shmq_looks_ready(h) : shmq_looks_roomy(q, 1);
}

void shmq_watch_time(struct shmq_queue *q, struct shmq_watch *w, int64_t now)
{
    bool slept_long;

    if (shmq_next_due(q) <= now)
        shmq_tick(q, now);
    slept_long = w->due > now + SHMQ_SHORT_SLEEP;
    w->due = shmq_set_alarm(q);
    if (w->event == SHMQ_NOT_FULL) {
        int64_t due = shmq_look_for_room(q, slept_long);

        w->due = due < w->due ? due : w->due;
    }
}

/* ---- the waker's side ---- */

/* The parties that wait for a message with a filter. */
static uint64_t filtered_parties(const struct shmq_header *h)
{
    uint64_t armed = shmq_armed(h, SHMQ_NOT_EMPTY), found = 0;

    for (; armed; armed &= armed - 1)
        if (h->parties[__builtin_ctzll(armed)].n & SHMQ_FILTERED)
            found |= armed & -armed;
    return found;
}

/* Takes all of them. */
static uint64_t select_filtered(struct shmq_header *h)
{
    uint64_t chosen = filtered_parties(h);

    if (chosen)
        set_armed(h, SHMQ_NOT_EMPTY, shmq_armed(h, SHMQ_NOT_EMPTY) & ~chosen);
    return chosen;
}

/* Takes up to `count` of the armed parties except `others`, first those after the last one
 * woken. */
static uint64_t select_armed(struct shmq_header *h, enum shmq_event event, uint64_t others,
                             uint32_t count)
{
    uint64_t armed = shmq_armed(h, event) & ~others, chosen = 0;
    uint32_t last = h->last_woken[event] % SHMQ_PARTIES;

    if (!armed || !count)
        return 0;
    while (count-- && armed != chosen) {
        uint64_t left = armed & ~chosen;
        uint32_t start = (last + 1) % SHMQ_PARTIES;
        uint64_t turned = start ? left >> start | left << (SHMQ_PARTIES - start) : left;

        last = (start + (uint32_t)__builtin_ctzll(turned)) % SHMQ_PARTIES;
        chosen |= 1ull << last;
    }
    SET(h->last_woken[event], last);
    set_armed(h, event, shmq_armed(h, event) & ~chosen);
    return chosen;
}

void shmq_select_own(struct shmq_queue *q)
{
    uint64_t chosen = 0;

    for (uint32_t party = 0; party < SHMQ_PARTIES; party++)
        if (q->h->parties[party].process && q->h->parties[party].attachment == q->attachment + 1)
            chosen |= 1ull << party;
    atomic_fetch_or_explicit(&q->to_wake, chosen, memory_order_relaxed);
}

/* The parties whose bits are cleared: they were selected by a process that may not have woken
 * them. */
void shmq_select_unposted(struct shmq_queue *q)
{
    uint64_t armed = shmq_armed(q->h, SHMQ_NOT_EMPTY) | shmq_armed(q->h, SHMQ_NOT_FULL), chosen = 0;

    for (uint32_t party = 0; party < SHMQ_PARTIES; party++)
        if (q->h->parties[party].process && !(armed >> party & 1))
            chosen |= 1ull << party;
    atomic_fetch_or_explicit(&q->to_wake, chosen, memory_order_relaxed);
}

void shmq_select_parties(struct shmq_queue *q, uint32_t freed, bool late)
{
    struct shmq_header *h = q->h;
    uint32_t ready = shmq_ready(h), posted = h->posted[SHMQ_NOT_EMPTY];
    uint64_t chosen;

    if (posted > h->asleep[SHMQ_NOT_EMPTY])
        posted = h->asleep[SHMQ_NOT_EMPTY]; /* the other posts were for sleepers that died */
    if (GET_RELAXED(h->state) == SHMQ_OPEN)
        chosen = select_armed(h, SHMQ_NOT_EMPTY, filtered_parties(h),
                              ready > posted ? ready - posted : 0) |
                 select_armed(h, SHMQ_NOT_FULL, 0, freed) | (q->arrived ? select_filtered(h) : 0);
    else
        chosen = select_armed(h, SHMQ_NOT_EMPTY, 0, SHMQ_PARTIES) |
                 select_armed(h, SHMQ_NOT_FULL, 0, SHMQ_PARTIES);
    if (late && !chosen)
        chosen = select_armed(h, SHMQ_NOT_EMPTY, 0, 1);
    if (late && !chosen)
        chosen = select_armed(h, SHMQ_NOT_FULL, 0, 1);
    if (chosen)
        atomic_fetch_or_explicit(&q->to_wake, chosen, memory_order_relaxed);
}

/* ---- cleanup ---- */

bool shmq_party_is_attached(const struct shmq_queue *q, const struct shmq_party *p)
{
    return p->attachment && p->attachment <= q->h->attachments_made &&
           q->attachments[p->attachment - 1].process;
}

/* The bits first: an entry without bits is merely in use. */
void shmq_forget_parties(struct shmq_queue *q, uint32_t at)
{
    for (uint32_t party = 0; party < SHMQ_PARTIES; party++) {
        struct shmq_party *p = &q->h->parties[party];

        if (!p->process || p->attachment != at + 1)
            continue;
        clear(q->h, party);
        SET_ATOMIC(p->process, 0);
    }
}

void shmq_settle_parties(struct shmq_queue *q)
{
    for (uint32_t party = 0; party < SHMQ_PARTIES; party++) {
        struct shmq_party *p = &q->h->parties[party];

        if (p->process && shmq_party_is_attached(q, p))
            continue;
        clear(q->h, party);
        if (p->process)
            SET_ATOMIC(p->process, 0);
    }
}

/* ---- the FIFOs ---- */

/* A wakeup of another process that this one has open. */
struct opened {
    char name[SHMQ_WAKEUP_NAME]; /* empty: the entry is free */
    int fd;
    dev_t device;
    ino_t inode;
};

static struct opened cache[SHMQ_PARTIES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of `cache` */

void shmq_wakeups_forked(void) { lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; }

void shmq_wakeup_name(char name[SHMQ_WAKEUP_NAME], const char *prefix, uint64_t process, uint32_t n)
{
    (void)snprintf(name, SHMQ_WAKEUP_NAME, "%s%016" PRIx64 ".%" PRIu32, prefix, process, n);
}

int shmq_open_wakeup(const char *name)
{
    shmq_reserve_standard();
    return open(name, O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
}

void shmq_post_wakeup(int fd)
{
    ssize_t written;

    do
        written = write(fd, "", 1);
    while (written < 0 && errno == EINTR);
}

bool shmq_clear_wakeup(int fd)
{
    char posts[SHMQ_PARTIES];
    ssize_t count;
    bool was_posted = false;

    do {
        count = read(fd, posts, sizeof posts);
        was_posted = was_posted || count > 0;
    } while (count == (ssize_t)sizeof posts || (count < 0 && errno == EINTR));
    return was_posted;
}

void shmq_await_wakeup(int fd, int64_t ns)
{
    struct pollfd poller = {.fd = fd, .events = POLLIN};
    struct timespec most = {ns / 1000000000, ns % 1000000000};

    (void)ppoll(&poller, 1, &most, NULL);
}

/* A program may close every descriptor that it does not know, and open files of its own under their
 * numbers: these must not get our bytes. */
static bool is_open(const struct opened *o)
{
    struct stat now;

    return *o->name && !fstat(o->fd, &now) && now.st_ino == o->inode && now.st_dev == o->device;
}

static bool open_entry(struct opened *o, const char *name)
{
    struct stat now;

    if (is_open(o))
        (void)close(o->fd);
    *o->name = '\0';
    o->fd = shmq_open_wakeup(name);
    if (o->fd < 0)
        return false;
    if (fstat(o->fd, &now) || !S_ISFIFO(now.st_mode)) {
        (void)close(o->fd);
        return false;
    }
    o->device = now.st_dev;
    o->inode = now.st_ino;
    memcpy(o->name, name, SHMQ_WAKEUP_NAME);
    return true;
}

/* The numbers of processes, and of a process's wakeups, are never reused: a name always means the
 * same wakeup. */
void shmq_post_named(const char *prefix, uint64_t process, uint32_t n)
{
    struct opened *o = &cache[(process * 31 + n) % SHMQ_PARTIES];
    char name[SHMQ_WAKEUP_NAME];

    if (!process)
        return;
    shmq_wakeup_name(name, prefix, process, n);
    pthread_mutex_lock(&lock);
    if ((!strcmp(o->name, name) && is_open(o)) || open_entry(o, name))
        shmq_post_wakeup(o->fd);
    pthread_mutex_unlock(&lock);
}

/* An entry may belong to another party by now, which then looks in vain. */
void shmq_wake_parties(struct shmq_queue *q)
{
    uint64_t parties = atomic_exchange(&q->to_wake, 0);

    for (; parties && q->wakeup_prefix; parties &= parties - 1) {
        const struct shmq_party *p = &q->h->parties[__builtin_ctzll(parties)];

        shmq_mark();
        shmq_post_named(q->wakeup_prefix, GET_ATOMIC(p->process),
                        GET_ATOMIC(p->n) & ~SHMQ_FILTERED);
    }
}
