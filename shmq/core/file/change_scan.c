#define _GNU_SOURCE
#include "file/change_scan.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "file/record.h"
#include "queue/amend.h"
#include "queue/slot.h"
#include "queue/transition.h"
#include "base/futex.h"

#define SETTLES 1024u       /* of one record                                            */
#define IDS 256u            /* dedupe ids of one record                                 */
#define MOST_SPIN 50000ll   /* ns before the writer sleeps, where that has paid         */
#define SOON 100000ll       /* ns: a spin would have paid                               */

static uint32_t epoch_of(const struct shmq_header *h) { return GET_ACQUIRE(h->journal_epoch); }

void shmq_scan_begin(struct shmq_change_scan *f, struct shmq_queue *q)
{
    memset(f, 0, sizeof *f);
    f->q = q;
    f->all = true;
    f->batch = GET_ACQUIRE(q->h->journal.batch) + 1;
    f->covered = shmq_synced(q);
    f->dedupe = q->h->journal.dedupe;
}

void shmq_scan_end(struct shmq_change_scan *f)
{
    free(f->puts.at);
    free(f->changed.at);
    free(f->done.at);
    free(f->moved.at);
    free(f->arrived.at);
    free(f->digests);
    memset(f, 0, sizeof *f);
}

/* ---- lists in private memory ---- */

static bool room_for(void **list, uint32_t len, uint32_t *room, size_t size)
{
    uint32_t more = *room ? *room * 2 : 256;
    void *bigger;

    if (len < *room)
        return true;
    bigger = realloc(*list, more * size);
    if (!bigger)
        return false;
    *list = bigger;
    *room = more;
    return true;
}

static void mark(struct shmq_change_scan *f, struct shmq_marks *marks, uint32_t at)
{
    if (!room_for((void **)&marks->at, marks->len, &marks->room, sizeof *marks->at)) {
        f->lacking = f->all = true;
        return;
    }
    marks->at[marks->len++] = at;
}

static void note(struct shmq_change_scan *f, struct shmq_candidates *list, uint64_t seq,
                 uint32_t at)
{
    if (!room_for((void **)&list->at, list->len, &list->room, sizeof *list->at)) {
        f->lacking = f->all = true;
        return;
    }
    list->at[list->len++] = (struct shmq_candidate){seq, at};
}

/* The digest of what was last written for the message in that slot. It is private to the writer: a
 * new writer lacks it, and writes the message once more. */
static uint64_t *digest_of(struct shmq_change_scan *f, uint32_t at)
{
    uint32_t room = f->digests_room;
    uint64_t *bigger;

    if (at < room)
        return &f->digests[at];
    room = at + 1 > room * 2 ? at + 1 : room * 2;
    room = room < 256 ? 256 : room;
    bigger = realloc(f->digests, room * sizeof *bigger);
    if (!bigger) {
        f->lacking = true;
        return NULL;
    }
    memset(bigger + f->digests_room, 0, (room - f->digests_room) * sizeof *bigger);
    f->digests = bigger;
    f->digests_room = room;
    return &bigger[at];
}

/* What a slot was seen with. */
struct seen {
    uint64_t word;
    bool amended; /* the record has the message's amended properties */
};

static uint64_t digest(const struct shmq_record *r, const struct seen *seen)
{
    uint64_t d = r->seq ^ (uint64_t)r->deliveries << 48 ^ (uint64_t)r->reason << 40 ^
                 (uint64_t)(r->flags & SHMQ_R_UPDATABLE) << 32;

    if (seen->amended)
        d ^= (uint64_t)shmq_crc32c(1, r->meta, r->meta_bytes) << 8;
    return d ? d : 1;
}

static void forget_puts_done(struct shmq_change_scan *f)
{
    if (f->puts_at)
        memmove(f->puts.at, f->puts.at + f->puts_at,
                (f->puts.len - f->puts_at) * sizeof *f->puts.at);
    f->puts.len -= f->puts_at;
    f->puts_at = 0;
}

/* ---- slots, read without a lock ---- */

static uint64_t seq_of(const struct shmq_slot *s) { return GET_ATOMIC(s->seq); }

/* A message that must be on disk. An acknowledged one counts as free. */
static bool is_live(enum shmq_state state)
{
    return state == SHMQ_READY || state == SHMQ_DELAYED || state == SHMQ_LEASED ||
           state == SHMQ_DEAD || state == SHMQ_MOVING;
}

static bool is_held_back(uint64_t word)
{
    return shmq_state_of(word) == SHMQ_SPENT && word & SHMQ_F_MOVED;
}

static bool is_live_word(uint64_t word) { return is_live(shmq_state_of(word)); }

/* Messages that the journal must have, including one that was moved before it was logged,
 * because its copy may be only in memory. */
static bool is_kept(uint64_t word) { return is_live_word(word) || is_held_back(word); }

/* What may have changed since it was logged; a lease alone is not a change. */
static bool may_differ(uint64_t word)
{
    enum shmq_state state = shmq_state_of(word);

    return shmq_deliveries_of(word) || state == SHMQ_DELAYED || state == SHMQ_DEAD ||
           state == SHMQ_MOVING;
}

/* False if it has none, or an entry is changing under us. */
static bool describe_amended(const struct shmq_queue *q, const struct shmq_slot *s,
                             struct shmq_record *r)
{
    const struct shmq_amended *amended = shmq_amended_of(q, s);
    struct shmq_text text = {NULL, 0};

    if (amended)
        text = shmq_amended_text(q, amended);
    if (!text.bytes)
        return false;
    r->meta = text.at;
    r->meta_bytes = text.bytes;
    return true;
}

/* The record of a message as its word says it is. What the word covers was written before it
 * was committed, so the fields are good if the word has not changed meanwhile. */
static void describe(int64_t wall, struct shmq_queue *q, const struct shmq_slot *s,
                     struct seen *seen, struct shmq_record *r)
{
    uint64_t word = seen->word;
    enum shmq_state state = shmq_state_of(word);
    uint32_t block = GET_ATOMIC(s->block), units = GET_ATOMIC(s->units);

    memset(r, 0, sizeof *r);
    r->type = SHMQ_R_PUT;
    r->seq = seq_of(s);
    r->put_at = s->put_at + wall;
    r->deliveries = (uint16_t)shmq_deliveries_with_this(word);
    r->priority = GET_ATOMIC(s->lane) & 0xF;
    r->codec = s->codec;
    if (word & SHMQ_F_GROUPED) {
        r->flags |= SHMQ_R_GROUPED;
        r->group = s->group;
    }
    if (word & SHMQ_F_TTL) {
        r->flags |= SHMQ_R_TTL;
        r->expires = s->expires + wall;
    }
    if (state == SHMQ_DELAYED) {
        r->flags |= word & SHMQ_F_HOLDS ? SHMQ_R_DELAYED | SHMQ_R_HOLDS : SHMQ_R_DELAYED;
        r->until = GET_ATOMIC(s->deadline) + wall;
    }
    if ((state == SHMQ_DEAD || state == SHMQ_MOVING || is_held_back(word)) && s->reason) {
        r->flags |= SHMQ_R_DEAD;
        r->reason = s->reason;
        r->dead_at = s->dead_at;
    }
    r->origin_queue = GET_ATOMIC(s->origin_queue);
    if (r->origin_queue) {
        r->flags |= SHMQ_R_ORIGIN;
        r->origin_seq = s->origin_seq;
    }
    r->body_bytes = s->body_bytes;
    r->meta_bytes = s->meta_bytes;
    r->body = q->arena + (uint64_t)block * SHMQ_UNIT;
    r->meta = q->arena + ((uint64_t)block + units) * SHMQ_UNIT - r->meta_bytes;
    if (block > q->geo.units || units > q->geo.units - block ||
        (uint64_t)r->body_bytes + r->meta_bytes > (uint64_t)units * SHMQ_UNIT)
        r->body_bytes = r->meta_bytes = 0; /* it is changing under us, or damaged */
    /* While a lease is closed, amended properties may be changing. */
    seen->amended = !(state == SHMQ_LEASED && word & SHMQ_F_CLOSED) && describe_amended(q, s, r);
}

/* Describes a slot that holds message `seq`; false if it does not, or no longer. */
static bool read_slot(int64_t wall, struct shmq_queue *q, const struct shmq_slot *s, uint64_t seq,
                      bool (*accepts)(uint64_t), struct shmq_record *r, struct seen *seen)
{
    uint64_t again;

    for (seen->word = shmq_word(s);; seen->word = again) {
        if (!accepts(seen->word) || seq_of(s) != seq)
            return false;
        describe(wall, q, s, seen, r);
        shmq_read_fence();
        again = shmq_word(s);
        if (again == seen->word)
            return r->seq == seq;
    }
}

/* Whether a record that was written is what the slot had: a claim protects a message's own block, and
 * only the word says that its amended properties stayed. */
static bool is_as_written(const struct shmq_slot *s, const struct seen *seen)
{
    shmq_read_fence();
    return !seen->amended || shmq_word(s) == seen->word;
}

/* ---- the slots to look at ---- */

/* Takes up the hints; false if some were, or may have been, overwritten. */
static bool follow_hints(struct shmq_change_scan *f)
{
    struct shmq_queue *q = f->q;
    const struct shmq_header *h = q->h;
    uint64_t fresh = GET_ACQUIRE(h->fresh_tail), spent = GET_ACQUIRE(h->spent_tail);
    uint32_t size = GET_ATOMIC(h->hints);

    if (fresh - f->fresh + spent - f->spent > GET_ATOMIC(h->slots_made))
        return false; /* looking at every slot is less work */
    if (epoch_of(h) != f->epoch || fresh - f->fresh >= size || spent - f->spent >= size)
        return fresh == f->fresh && spent == f->spent && epoch_of(h) == f->epoch;
    for (uint64_t seq = f->fresh + 1; seq <= fresh; seq++)
        note(f, &f->puts, seq, GET_ATOMIC(q->fresh[shmq_hint_of(q, seq)]));
    for (uint64_t counter = f->spent; counter < spent; counter++)
        mark(f, &f->changed, GET_ATOMIC(q->spent[shmq_hint_of(q, counter)]));
    shmq_read_fence();
    if (epoch_of(h) != f->epoch || GET_ACQUIRE(h->fresh_tail) - f->fresh >= size ||
        GET_ACQUIRE(h->spent_tail) - f->spent >= size || f->lacking)
        return false;
    f->fresh = fresh;
    f->spent = spent;
    return true;
}

static int by_seq(const void *a, const void *b)
{
    const struct shmq_candidate *x = a, *y = b;

    return (x->seq > y->seq) - (x->seq < y->seq);
}

/* The batch of a claim that a dead writer had not published. The claim stays, because the message may
 * be in the files: its end must be written, too. But the message itself is written again. */
#define UNPUBLISHED UINT64_MAX

/* Whether the message of the slot is in the journal, or in this collection. */
static bool is_logged(const struct shmq_change_scan *f, uint32_t at, uint64_t seq)
{
    const struct shmq_logged *logged = &f->q->logged[at];

    return shmq_logged_seq(logged) == seq && GET_ATOMIC(logged->batch) != UNPUBLISHED;
}

static void look_at(struct shmq_change_scan *f, uint32_t at)
{
    const struct shmq_slot *s = &f->q->slots[at];
    uint64_t word = shmq_word(s), seq = seq_of(s);
    enum shmq_state state = shmq_state_of(word);

    if (state == SHMQ_SPENT)
        mark(f, &f->changed, at);
    if (is_kept(word) && !is_logged(f, at, seq))
        note(f, &f->puts, seq, at);
    else if (is_live(state) && may_differ(word))
        mark(f, &f->changed, at);
}

/* Hints are followed from the point where they were before the slots were looked at. */
static void look_at_all(struct shmq_change_scan *f)
{
    struct shmq_queue *q = f->q;

    f->epoch = epoch_of(q->h);
    f->spent = GET_ACQUIRE(q->h->spent_tail);
    f->fresh = GET_ACQUIRE(q->h->fresh_tail);
    f->puts_at = f->puts.len = f->changed.len = f->moved.len = 0;
    f->lacking = f->all = false;
    for (uint32_t at = 0; at < GET_ATOMIC(q->h->slots_made) && at < q->geo.slots_max; at++)
        look_at(f, at);
    if (f->puts.len)
        qsort(f->puts.at, f->puts.len, sizeof *f->puts.at, by_seq);
}

/* Whether there is something to collect. */
static bool has_news(const struct shmq_change_scan *f)
{
    const struct shmq_header *h = f->q->h;

    return f->all || f->changed.len || f->arrived.len || f->puts_at < f->puts.len ||
           GET_ACQUIRE(h->fresh_tail) != f->fresh || GET_ACQUIRE(h->spent_tail) != f->spent ||
           epoch_of(h) != f->epoch;
}

/* ---- claims ---- */

/* Claims message `seq` of a slot; false if it was settled first. */
static bool claim(struct shmq_change_scan *f, uint32_t at, uint64_t seq)
{
    struct shmq_logged *logged = &f->q->logged[at];
    const struct shmq_slot *s = &f->q->slots[at];

    if (!is_kept(shmq_word(s)) || seq_of(s) != seq)
        return false;
    SET_ATOMIC(logged->batch, f->batch);
    shmq_set_logged(logged, seq);
    shmq_fence();
    return is_kept(shmq_word(s)) && seq_of(s) == seq;
}

void shmq_disclaim(struct shmq_change_scan *f)
{
    struct shmq_queue *q = f->q;
    uint64_t synced = GET_ACQUIRE(q->h->journal.batch);

    for (uint32_t at = 0; at < GET_ATOMIC(q->h->slots_made) && at < q->geo.slots_max; at++) {
        struct shmq_logged *logged = &q->logged[at];

        if (GET_ATOMIC(logged->batch) > synced && is_kept(shmq_word(&q->slots[at])))
            SET_ATOMIC(logged->batch, UNPUBLISHED);
    }
    f->batch = synced + 1;
    f->all = true;
}

/* ---- records ---- */

static bool fits(struct shmq_change_scan *f, const struct shmq_out *out, uint64_t bytes)
{
    if ((uint64_t)(out->end - out->at) >= bytes)
        return true;
    f->needed = bytes;
    return false;
}

static uint64_t settle_bytes(uint32_t count)
{
    return shmq_record_size(&(struct shmq_record){.type = SHMQ_R_SETTLE, .count = count});
}

static void write_settles(struct shmq_change_scan *f, struct shmq_out *out, const uint64_t *seqs,
                          uint32_t count, uint32_t salt)
{
    if (!count)
        return;
    out->at = shmq_record_write(
        out->at, salt,
        &(struct shmq_record){.type = SHMQ_R_SETTLE, .count = count, .entries = seqs});
    f->settles_logged += count;
}

static bool write_update(struct shmq_change_scan *f, struct shmq_out *out, uint32_t at,
                         uint32_t salt)
{
    const struct shmq_slot *s = &f->q->slots[at];
    struct shmq_record r;
    uint64_t seq = shmq_logged_seq(&f->q->logged[at]), *last = digest_of(f, at);
    unsigned char *end;
    struct seen seen;

    if (!last)
        return true;
    do {
        if (!read_slot(f->wall, f->q, s, seq, is_live_word, &r, &seen) ||
            *last == digest(&r, &seen))
            return true;
        if (!seen.amended) { /* otherwise the put is repeated, with the error */
            r.type = SHMQ_R_UPDATE;
            r.flags &= SHMQ_R_UPDATABLE;
        }
        if (!fits(f, out, shmq_record_size(&r)))
            return false;
        end = shmq_record_write(out->at, salt, &r);
    } while (!is_as_written(s, &seen));
    out->at = end;
    *last = digest(&r, &seen);
    return true;
}

/* Looks at one hinted slot: its sequence number is to be settled, or 0. False without room. */
static bool follow_change(struct shmq_change_scan *f, struct shmq_out *out, uint32_t at,
                          bool arrived, uint32_t salt, uint64_t *settled)
{
    struct shmq_slot *s = shmq_slot_if_made(f->q, at);
    uint64_t word = s ? shmq_word(s) : 0, seq = s ? seq_of(s) : 0;

    *settled = 0;
    if (!s)
        return true;
    if (shmq_state_of(word) != SHMQ_SPENT)
        return !is_logged(f, at, seq) || write_update(f, out, at, salt);
    /* A slot that owes nothing is SPENT for a moment, and may hold another message by now. */
    shmq_read_fence();
    if (shmq_word(s) != word)
        return true;
    if (word & SHMQ_F_MOVED && !arrived) {
        note(f, &f->moved, seq, at);
        return true;
    }
    /* The claim keeps its put from being written later, when no settlement would follow it. */
    if (is_logged(f, at, seq) ||
        (arrived ? claim(f, at, seq) : shmq_logged_seq(&f->q->logged[at]) == seq))
        *settled = seq;
    note(f, &f->done, seq, at);
    return true;
}

/* Looks at all slots of a list, and takes those off that it could. False without room. */
static bool follow_changes(struct shmq_change_scan *f, struct shmq_out *out,
                           struct shmq_marks *marks, uint32_t salt)
{
    struct shmq_out within = *out;
    uint64_t seqs[SETTLES], settled;
    uint32_t count = 0, i;

    for (i = 0; i < marks->len && !f->lacking; i++) {
        struct shmq_out rest = within;

        /* Room for the settlements is kept back from what else is written. */
        if (!fits(f, &within, settle_bytes(count + 1)))
            break;
        rest.end -= settle_bytes(count + 1);
        if (!follow_change(f, &rest, marks->at[i], marks == &f->arrived, salt, &settled))
            break;
        within.at = rest.at;
        if (settled)
            seqs[count++] = settled;
        if (count == SETTLES) {
            write_settles(f, &within, seqs, count, salt);
            count = 0;
        }
    }
    write_settles(f, &within, seqs, count, salt);
    *out = within;
    if (i)
        memmove(marks->at, marks->at + i, (marks->len - i) * sizeof *marks->at);
    marks->len -= i;
    return !marks->len;
}

/* Writes the put of a candidate, if it is still one. False without room. */
static bool follow_put(struct shmq_change_scan *f, struct shmq_out *out,
                       const struct shmq_candidate *c, uint32_t salt)
{
    struct shmq_slot *s = shmq_slot_if_made(f->q, c->at);
    struct shmq_logged *logged = &f->q->logged[c->at];
    struct shmq_record r;
    bool claimed, room, again;
    unsigned char *end;
    struct seen seen;

    if (!s || is_logged(f, c->at, c->seq))
        return true;
    again = shmq_logged_seq(logged) == c->seq;
    do {
        claimed = claim(f, c->at, c->seq) &&
                  read_slot(f->wall, f->q, s, c->seq, is_kept, &r, &seen);
        room = claimed && fits(f, out, shmq_record_size(&r));
        end = room ? shmq_record_write(out->at, salt, &r) : NULL;
    } while (room && !is_as_written(s, &seen));
    if (!room) {
        /* Settled meanwhile, and then nothing of it is written, whether its end saw the claim or
         * not; or without room, and then it is claimed again. The claim of whatever message stands
         * there by now is none of this one's. */
        if (again && shmq_logged_seq(logged) == c->seq)
            SET_ATOMIC(logged->batch, UNPUBLISHED);
        else if (shmq_logged_seq(logged) == c->seq)
            shmq_set_logged(logged, 0);
        return !claimed;
    }
    out->at = end;
    f->puts_logged++;
    if (digest_of(f, c->at))
        *digest_of(f, c->at) = digest(&r, &seen);
    return true;
}

static bool follow_puts(struct shmq_change_scan *f, struct shmq_out *out, uint32_t salt)
{
    while (f->puts_at < f->puts.len) {
        if (!follow_put(f, out, &f->puts.at[f->puts_at], salt))
            return false;
        f->puts_at++;
    }
    return true;
}

/* ---- dedupe ids ---- */

/* One entry of the ring: false if its window has passed. */
static bool read_id(struct shmq_queue *q, uint64_t counter, int64_t wall, struct shmq_taken *id)
{
    const struct shmq_header *h = q->h;
    uint32_t size, again = GET_ATOMIC(h->dedupe_size);
    const struct shmq_dedupe *e;

    do { /* until the ring did not grow meanwhile */
        size = again;
        e = &q->dedupe[counter & (size - 1) & (q->geo.dedupe_max - 1)];
        id->hash[0] = GET_ATOMIC(e->hash[0]);
        id->hash[1] = GET_ATOMIC(e->hash[1]);
        id->seq = GET_ATOMIC(e->seq);
        id->until = GET_ATOMIC(e->until) + wall;
        shmq_read_fence();
        again = GET_ATOMIC(h->dedupe_size);
    } while (again != size);
    return GET_ATOMIC(h->dedupe_head) <= counter;
}

static uint64_t ids_bytes(uint32_t count)
{
    return shmq_record_size(&(struct shmq_record){.type = SHMQ_R_DEDUPE, .count = count});
}

static unsigned char *write_taken(unsigned char *at, const struct shmq_taken *ids, uint32_t count,
                                  uint32_t salt)
{
    return shmq_record_write(
        at, salt, &(struct shmq_record){.type = SHMQ_R_DEDUPE, .count = count, .entries = ids});
}

/* False if there are more, but no room. */
static bool write_ids(struct shmq_queue *q, uint64_t *cursor, uint64_t limit, int64_t wall,
                      struct shmq_out *out, uint32_t salt)
{
    struct shmq_taken ids[IDS];
    uint32_t count = 0;
    uint64_t at, tail = __atomic_load_n(&q->h->dedupe_tail, __ATOMIC_ACQUIRE);
    bool room = true;

    if (!q->geo.dedupe_max)
        return true;
    if (*cursor < GET_ATOMIC(q->h->dedupe_head))
        *cursor = GET_ATOMIC(q->h->dedupe_head);
    for (at = *cursor; at < tail; at++) {
        room = (uint64_t)(out->end - out->at) >= ids_bytes(count + 1);
        if (!room)
            break;
        if (!read_id(q, at, wall, &ids[count]))
            continue;
        if (ids[count].seq > limit)
            break;
        if (++count == IDS) {
            out->at = write_taken(out->at, ids, count, salt);
            count = 0;
        }
    }
    if (count)
        out->at = write_taken(out->at, ids, count, salt);
    *cursor = at;
    return room;
}

int shmq_scan_dedupe(struct shmq_queue *q, uint64_t *cursor, uint64_t limit, struct shmq_out *out,
                     uint32_t salt)
{
    return write_ids(q, cursor, limit, shmq_wall() - shmq_now(), out, salt) ? SHMQ_OK : SHMQ_FULL;
}

/* ---- a collection ---- */

/* Undoes a collection that will not be written: every slot must be looked at again. */
static void undo(struct shmq_change_scan *f)
{
    f->done.len = f->arrived.len = 0;
    if (f->digests)
        memset(f->digests, 0, f->digests_room * sizeof *f->digests);
    f->dedupe = f->q->h->journal.dedupe;
    shmq_disclaim(f);
}

int shmq_collect(struct shmq_change_scan *f, struct shmq_out *out, uint32_t salt)
{
    unsigned char *begin = out->at;
    bool whole;

    f->wall = shmq_wall() - shmq_now();
    f->needed = f->puts_logged = f->settles_logged = 0;
    forget_puts_done(f);
    if (f->all || !follow_hints(f))
        look_at_all(f);
    whole = follow_changes(f, out, &f->arrived, salt) &&
            follow_changes(f, out, &f->changed, salt) && follow_puts(f, out, salt);
    f->covered = f->puts_at < f->puts.len ? f->puts.at[f->puts_at].seq - 1 : f->fresh;
    if (f->covered < shmq_synced(f->q))
        f->covered = shmq_synced(f->q);
    whole = write_ids(f->q, &f->dedupe, f->covered, f->wall, out, salt) && whole;
    if (f->lacking) {
        undo(f);
        out->at = begin;
        return SHMQ_NO_SPACE;
    }
    return whole ? SHMQ_OK : SHMQ_FULL;
}

uint32_t shmq_held_back(struct shmq_change_scan *f)
{
    struct shmq_candidates *moved = &f->moved;
    uint32_t kept = 0;

    for (uint32_t i = 0; i < moved->len; i++) {
        const struct shmq_slot *s = shmq_slot_if_made(f->q, moved->at[i].at);

        if (s && is_held_back(shmq_word(s)) && seq_of(s) == moved->at[i].seq)
            moved->at[kept++] = moved->at[i];
    }
    return moved->len = kept;
}

void shmq_arrived(struct shmq_change_scan *f, uint32_t at)
{
    uint32_t kept = 0, had = f->moved.len;

    for (uint32_t i = 0; i < had; i++)
        if (f->moved.at[i].at != at)
            f->moved.at[kept++] = f->moved.at[i];
    f->moved.len = kept;
    if (kept < had)
        mark(f, &f->arrived, at);
}

/* ---- what another queue has of the messages moved there ---- */

static bool is_on_its_way(const struct shmq_queue *q, const struct shmq_slot *s, uint64_t word)
{
    const struct shmq_logged *logged = &q->logged[s - q->slots];

    if (shmq_state_of(word) == SHMQ_STAGED || is_held_back(word))
        return true;
    return is_live_word(word) && (shmq_logged_seq(logged) != seq_of(s) ||
                                  GET_ATOMIC(logged->batch) > GET_ACQUIRE(q->h->journal.batch));
}

static void keep(const uint64_t *seqs, bool *waits, uint32_t count, uint64_t seq)
{
    uint32_t low = 0, high = count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (seqs[middle] == seq)
            waits[middle] = true;
        if (seqs[middle] < seq)
            low = middle + 1;
        else
            high = middle;
    }
}

void shmq_copies_waiting(struct shmq_queue *q, uint64_t origin_queue, const uint64_t *seqs,
                         bool *waits, uint32_t count)
{
    for (uint32_t at = 0; at < GET_ATOMIC(q->h->slots_made) && at < q->geo.slots_max; at++) {
        const struct shmq_slot *s = &q->slots[at];
        uint64_t word = shmq_word(s);

        if (is_on_its_way(q, s, word) && GET_ATOMIC(s->origin_queue) == origin_queue)
            keep(seqs, waits, count, GET_ATOMIC(s->origin_seq));
    }
}

/* ---- afterwards ---- */

void shmq_mark_synced(struct shmq_change_scan *f, uint64_t segment, uint64_t offset, uint64_t bytes)
{
    struct shmq_journal *j = &f->q->h->journal;
    uint64_t before = shmq_synced(f->q);

    /* An offset of 0 between: a segment and another one's offset are never read together. */
    SET_ATOMIC(j->offset, 0);
    shmq_fence();
    SET_ATOMIC(j->segment, segment);
    shmq_fence();
    SET_ATOMIC(j->offset, offset);
    SET_RELEASE(j->batch, f->batch);
    SET_RELEASE(j->synced, f->covered);
    f->batch++;
    SET(j->dedupe, f->dedupe);
    SET(j->synced_at, shmq_wall());
    SET(j->bytes, j->bytes + bytes);
    SET(j->commits, j->commits + (bytes != 0));
    SET(j->puts, j->puts + f->puts_logged);
    SET(j->settles, j->settles + f->settles_logged);
    atomic_store_explicit(&j->error, 0, memory_order_release);
    shmq_wake_numbers(f->q, before, f->covered);
}

bool shmq_release(struct shmq_change_scan *f, uint32_t most)
{
    struct shmq_queue *q = f->q;

    for (; most && f->done.len; most--) {
        struct shmq_candidate done = f->done.at[--f->done.len];
        struct shmq_slot *s = shmq_slot_if_made(f->q, done.at);

        if (!s || shmq_state_of(shmq_word(s)) != SHMQ_SPENT || s->seq != done.seq)
            continue;
        shmq_set_logged(&q->logged[done.at], 0);
        SET(q->h->spent, q->h->spent - 1);
        shmq_slot_release(q, s);
    }
    return f->done.len != 0;
}

void shmq_fail(struct shmq_queue *q, uint32_t error)
{
    atomic_store_explicit(&q->h->journal.error, error, memory_order_release);
    shmq_wake_synced(q);
}

/* ---- waiting for something to do ---- */

/* Whether a put waits that is not on disk yet. */
static bool is_sync_awaited(const struct shmq_change_scan *f)
{
    const struct shmq_header *h = f->q->h;

    return GET_ACQUIRE(h->journal.awaited) > shmq_synced(f->q) &&
           GET_ACQUIRE(h->fresh_tail) > shmq_synced(f->q);
}

static int64_t real_now(void) { return shmq_read_clock(CLOCK_MONOTONIC); }

/* Of many puts confirmed at once, the rest of their callers are about to put again. */
static void await_more_puts(struct shmq_change_scan *f, uint32_t confirmed, int64_t patience)
{
    int64_t end = real_now() + patience;

    while (GET_ACQUIRE(f->q->h->fresh_tail) - shmq_synced(f->q) < confirmed && real_now() < end)
        (void)sched_yield();
}

static bool spin_until_awaited(struct shmq_change_scan *f)
{
    int64_t end = real_now() + f->spin;

    do {
        for (int i = 0; i < 32; i++) {
            if (is_sync_awaited(f))
                return true;
            shmq_pause();
        }
        (void)sched_yield(); /* a putter may need this very core */
    } while (real_now() < end);
    f->spin /= 2;
    return false;
}

/* Sleeps, after announcing which events must wake it. */
static int sleep_for_changes(struct shmq_change_scan *f, enum shmq_awake what, int64_t ns)
{
    struct shmq_header *h = f->q->h;
    int64_t start = real_now();
    int status;

    atomic_store_explicit(&h->journal_asleep, what, memory_order_seq_cst);
    shmq_fence();
    if (is_sync_awaited(f) || f->woken || (what == SHMQ_IDLE && has_news(f)))
        status = SHMQ_OK;
    else
        status = shmq_futex_wait(&h->journal_asleep, what, ns);
    atomic_store_explicit(&h->journal_asleep, SHMQ_AWAKE, memory_order_relaxed);
    if (is_sync_awaited(f) && real_now() - start < SOON)
        f->spin = MOST_SPIN;
    return status;
}

int shmq_await_changes(struct shmq_change_scan *f, int64_t ns, int64_t linger, uint32_t confirmed,
                       int64_t patience)
{
    int64_t now = real_now(), end = now + ns, news_at = 0;

    if (f->spin > 1000)
        (void)spin_until_awaited(f);
    for (;; now = real_now()) {
        bool news = has_news(f);
        int64_t until = end;
        int status;

        if (GET_RELAXED(f->q->h->state) != SHMQ_OPEN)
            return SHMQ_DELETED;
        if (is_sync_awaited(f)) {
            await_more_puts(f, confirmed, patience);
            return SHMQ_OK;
        }
        if (news && !news_at)
            news_at = now;
        if (news && now - news_at >= linger)
            return SHMQ_OK;
        if (atomic_exchange_explicit(&f->woken, false, memory_order_acq_rel))
            return SHMQ_OK;
        if (now >= end)
            return SHMQ_TIMED_OUT;
        if (news && news_at + linger < until)
            until = news_at + linger;
        status = sleep_for_changes(f, news ? SHMQ_LINGERING : SHMQ_IDLE, until - now);
        if (status == SHMQ_INTERRUPTED)
            return status;
    }
}

void shmq_wake_scan(struct shmq_change_scan *f)
{
    atomic_store_explicit(&f->woken, true, memory_order_seq_cst);
    shmq_wake_writer(f->q);
}

/* ---- snapshots ---- */

/* The bytes were copied without protection from reuse: they are valid if the slot still holds the
 * message. */
static bool is_still(const struct shmq_slot *s, uint64_t seq)
{
    shmq_read_fence();
    return is_kept(shmq_word(s)) && seq_of(s) == seq;
}

static bool is_scanned(const struct shmq_scanned *which, const struct shmq_slot *s, uint64_t seq)
{
    return which->after < seq && seq <= which->limit &&
           (!which->copies || GET_ATOMIC(s->origin_queue));
}

int shmq_scan(struct shmq_queue *q, uint32_t *cursor, const struct shmq_scanned *which,
              struct shmq_out *out, uint32_t salt, uint64_t *count, uint64_t *needed)
{
    int64_t wall = shmq_wall() - shmq_now();

    for (; *cursor < GET_ATOMIC(q->h->slots_made) && *cursor < q->geo.slots_max; ++*cursor) {
        const struct shmq_slot *s = &q->slots[*cursor];
        uint64_t seq = seq_of(s);
        struct shmq_record r;
        unsigned char *end;
        struct seen seen;

        if (!is_scanned(which, s, seq) || !read_slot(wall, q, s, seq, is_kept, &r, &seen))
            continue;
        if (shmq_record_size(&r) > (uint64_t)(out->end - out->at)) {
            *needed = shmq_record_size(&r);
            return SHMQ_FULL;
        }
        end = shmq_record_write(out->at, salt, &r);
        if (!is_still(s, seq))
            continue;
        if (!is_as_written(s, &seen)) {
            --*cursor; /* once more */
            continue;
        }
        out->at = end;
        ++*count;
    }
    return SHMQ_OK;
}
