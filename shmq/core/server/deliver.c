#include "server/requests.h"

#include "queue/lock.h"
#include "queue/properties.h"
#include "queue/transition.h"
#include "server/server.h"

#define FIXED 20u /* bytes of a DELIVER before its properties: sequence to flags */
#define MOST_DELIVERIES 0xFFFFu

/* The most time of a span that all searches together may take, in ns. */
#define SEARCH_SPAN 8000000ll
#define SEARCH_MOST 4000000ll

bool shmq_may_deliver(const struct shmq_session *session)
{
    uint64_t bytes;

    return !session->broken && shmq_pending(&session->out) < SHMQ_OUT_HIGH &&
           shmq_lease_room(session, &bytes);
}

/* ---- writing ---- */

/* Writes everything but the body, which has `body_bytes`: returns its place, or NULL if there is no
 * memory. `with_body`: makes room for it, too. */
static unsigned char *write_head(struct shmq_session *session, uint32_t id, uint64_t receipt,
                                 const struct shmq_view *view, bool with_body)
{
    struct shmq_worded worded = shmq_properties_worded(view->meta, view->meta_bytes, view->codec);
    uint32_t props = worded.size ? 4 + worded.size : 0;
    uint32_t deliveries = view->deliveries < MOST_DELIVERIES ? view->deliveries : MOST_DELIVERIES;
    size_t size = SHMQ_FRAME_HEADER + FIXED + props;
    unsigned char *at = shmq_session_room(session, size + (with_body ? view->body_bytes : 0));

    if (!at)
        return NULL;
    at = shmq_frame_write(at, SHMQ_T_DELIVER, SHMQ_FRAME_MORE, id,
                          FIXED + props + view->body_bytes);
    at = shmq_store64(at, view->seq);
    at = shmq_store64(at, receipt);
    at = shmq_store16(at, (uint16_t)deliveries);
    *at++ = view->priority;
    *at++ = (unsigned char)((props ? SHMQ_FLAG_PROPERTIES : 0) |
                            (deliveries > 1 ? SHMQ_FLAG_REDELIVERED : 0));
    if (props) {
        at = shmq_store32(at, worded.size);
        at = shmq_properties_write(at, &worded);
    }
    return at;
}

/* Writes a whole message; false if out of memory. If its bytes may change meanwhile, the
 * caller checks that afterwards, and takes it back. */
static bool write_message(struct shmq_session *session, uint32_t id, uint64_t receipt,
                          const struct shmq_view *view)
{
    unsigned char *at = write_head(session, id, receipt, view, true);

    if (!at)
        return false;
    if (view->body_bytes)
        memcpy(at, view->body, view->body_bytes);
    session->out.used = (size_t)(at - session->out.bytes) + view->body_bytes;
    return true;
}

static void unpin(struct shmq_attached_queue *queue, uint32_t slot)
{
    queue->users++;
    shmq_outgoing_body_gone(&(struct shmq_outgoing_body){.queue = queue, .slot = slot});
}

/* The same for a pinned message: its body is sent in place. */
static bool write_pinned(struct shmq_session *session, struct shmq_attached_queue *queue,
                         uint32_t id, uint64_t receipt, const struct shmq_view *view)
{
    unsigned char *at = write_head(session, id, receipt, view, false);

    if (!at)
        return false;
    session->out.used = (size_t)(at - session->out.bytes);
    if (!shmq_outbox_put(&session->out, view->body, view->body_bytes, queue, view->at)) {
        shmq_session_break(session);
        return false;
    }
    queue->users++;
    return true;
}

/* The status of the frame whose header begins at `at`: a single one's is OK, and so is the
 * last one's of a CONSUME. */
static void end_series(struct shmq_session *session, size_t at)
{
    shmq_store16(session->out.bytes + at + 10, SHMQ_S_OK);
}

/* ---- leasing ---- */

struct leased {
    struct shmq_view view;
    bool pinned;
};

static bool pin(struct shmq_attached_queue *queue, struct leased *leased, int64_t now)
{
    struct shmq_view view;

    if (leased->view.body_bytes < SHMQ_DIRECT ||
        shmq_pin(queue->q, leased->view.receipt, now, &view) != SHMQ_OK)
        return false;
    ++*queue->views;
    return true;
}

/* How many more bytes of output the session should get. */
static int64_t budget_of(const struct shmq_session *session)
{
    return (int64_t)SHMQ_OUT_HIGH - (int64_t)shmq_pending(&session->out);
}

/* Leases the next message, or the next that matches; holds the lock. */
static int lease_next(struct shmq_waiter *w, int64_t now, struct shmq_view *view)
{
    struct shmq_queue *q = w->queue_session->queue->q;

    if (w->filtered)
        return shmq_select(q, &w->filtered->selection, now, true, view);
    return shmq_lease(q, now, true, view);
}

/* The lock is free: whether the search for a match goes on. */
static bool searches_on(struct shmq_waiter *w, int *outcome)
{
    if (!w->filtered)
        return false;
    shmq_select_again(&w->filtered->selection);
    if (*outcome != SHMQ_EMPTY || !w->filtered->selection.more)
        return false;
    *outcome = SHMQ_OK;
    return true;
}

/* Whether a search may continue now. The time since `*since`, which is set again, is charged to all
 * searches together: part of each span is reserved for everything else. */
static bool may_search(struct shmq_engine *engine, int64_t *since)
{
    int64_t now = shmq_now();

    if (*since)
        engine->search_spent += now - *since;
    *since = now;
    if (now - engine->search_from > SEARCH_SPAN) {
        engine->search_from = now;
        engine->search_spent = 0;
    }
    return engine->search_spent < SEARCH_MOST;
}

/* Whether the waiter's search is deferred: it continues where it was, at a later tick. */
static bool put_off(struct shmq_waiter *w, int64_t *since, int *outcome)
{
    if (!w->filtered || may_search(w->session->engine, since))
        return false;
    w->filtered->searches = true;
    *outcome = SHMQ_EMPTY;
    shmq_attached_queue_later(w->queue_session->queue);
    return true;
}

/* Begins to search, or goes on. */
static void begin_search(struct shmq_waiter *w)
{
    struct shmq_filter_request *filtered = w->filtered;

    if (filtered->searches)
        shmq_select_again(&filtered->selection);
    else
        shmq_select_begin(w->queue_session->queue->q, &filtered->selection, &filtered->filter);
    filtered->searches = false;
}

/* Leases up to `most`; holds the lock. */
static uint32_t lease_some(struct shmq_waiter *w, struct leased *leased, uint32_t most,
                           int *outcome)
{
    struct shmq_queue *q = w->queue_session->queue->q;
    int64_t now = shmq_time(q), budget = budget_of(w->session);
    uint32_t count = 0, room;
    uint64_t bytes;

    *outcome = SHMQ_OK;
    room = shmq_lease_room(w->session, &bytes);
    most = most < room ? most : room;
    budget = (uint64_t)budget < bytes ? budget : (int64_t)bytes;
    while (count < most && budget > 0) {
        struct leased *next = &leased[count];

        *outcome = lease_next(w, now, &next->view);
        if (*outcome != SHMQ_OK)
            break;
        next->pinned = pin(w->queue_session->queue, next, now);
        budget -= next->view.body_bytes + SHMQ_FRAME_HEADER + FIXED;
        count++;
    }
    return count;
}

/* Writes a leased message, unless its lease was lost meanwhile; whether it did. The bytes of a body
 * that is not pinned are ours as long as the lease is. */
static bool write_leased(struct shmq_waiter *w, struct leased *leased)
{
    struct shmq_attached_queue *queue = w->queue_session->queue;
    struct shmq_view *view = &leased->view;
    size_t before = w->session->out.used;
    uint64_t sealed = shmq_seal(&queue->q->seal, view->receipt);

    if (leased->pinned) {
        if (write_pinned(w->session, queue, w->id, sealed, view))
            return true;
        unpin(queue, view->at);
        w->session->out.used = before;
        return false;
    }
    if (write_message(w->session, w->id, sealed, view) &&
        shmq_holds(queue->q, view->receipt, INT64_MIN))
        return true;
    w->session->out.used = before;
    return false;
}

/* Leases, then writes without the lock. */
static uint32_t deliver_leases(struct shmq_waiter *w, uint32_t most, bool whole, int *outcome,
                               size_t *last)
{
    struct leased leased[SHMQ_RUN];
    struct shmq_attached_queue *queue = w->queue_session->queue;
    uint32_t count, written = 0;

    if ((*outcome = shmq_attached_queue_lock(queue, whole)) != SHMQ_OK)
        return 0;
    count = lease_some(w, leased, most < SHMQ_RUN ? most : SHMQ_RUN, outcome);
    shmq_attached_queue_unlock(queue);
    for (uint32_t i = 0; i < count; i++) {
        size_t before = w->session->out.used;

        shmq_held_lease_begin(w->queue_session, &leased[i].view, w->subscribes ? w : NULL);
        if (write_leased(w, &leased[i])) {
            *last = before;
            written++;
            w->delivered++;
            if (w->subscribes)
                end_series(w->session, before);
        } else if (!w->session->broken) { /* what a session has no memory for goes back with it */
            shmq_held_lease_end(queue, leased[i].view.receipt);
        }
    }
    return written;
}

/* Writes one message under the lock and acknowledges it, so that it is not delivered again; whether
 * it did. */
static bool deliver_settled(struct shmq_waiter *w, struct leased *leased, int64_t now)
{
    struct shmq_attached_queue *queue = w->queue_session->queue;
    size_t before = w->session->out.used;
    bool written = leased->pinned ? write_pinned(w->session, queue, w->id, 0, &leased->view)
                                  : write_message(w->session, w->id, 0, &leased->view);

    if (!written) {
        if (leased->pinned) {
            shmq_unpin(queue->q, leased->view.at);
            --*queue->views;
        }
        w->session->out.used = before;
        (void)shmq_return_unseen(queue->q, leased->view.receipt, 0, now);
        return false;
    }
    (void)shmq_ack(queue->q, leased->view.receipt, now);
    if (w->subscribes)
        end_series(w->session, before);
    return true;
}

static uint32_t deliver_all_settled(struct shmq_waiter *w, uint32_t most, bool whole, int *outcome,
                                    size_t *last)
{
    struct leased leased;
    struct shmq_attached_queue *queue = w->queue_session->queue;
    int64_t now, budget = budget_of(w->session);
    uint32_t written = 0;

    if ((*outcome = shmq_attached_queue_lock(queue, whole)) != SHMQ_OK)
        return 0;
    now = shmq_now();
    while (written < most && written < SHMQ_RUN && budget > 0) {
        size_t before = w->session->out.used;

        *outcome = lease_next(w, now, &leased.view);
        if (*outcome != SHMQ_OK)
            break;
        leased.pinned = pin(queue, &leased, now);
        budget -= leased.view.body_bytes + SHMQ_FRAME_HEADER + FIXED;
        if (!deliver_settled(w, &leased, now))
            break;
        *last = before;
        written++;
    }
    shmq_attached_queue_unlock(queue);
    return written;
}

/* Answers a READY if a message is visible; returns how many it answered. */
static uint32_t tell_of_message(struct shmq_waiter *w, int *outcome)
{
    struct shmq_attached_queue *queue = w->queue_session->queue;

    if ((*outcome = shmq_attached_queue_lock(queue, true)) != SHMQ_OK)
        return 0;
    shmq_tick_if_due(queue->q, shmq_now());
    *outcome = shmq_looks_ready(queue->q->h) ? SHMQ_OK : SHMQ_EMPTY;
    shmq_attached_queue_unlock(queue);
    if (*outcome != SHMQ_OK)
        return 0;
    shmq_reply(w->session, w->id, SHMQ_S_OK, NULL, 0);
    return 1;
}

uint32_t shmq_deliver(struct shmq_waiter *w, uint32_t most, bool whole, int *outcome)
{
    uint32_t total = 0, count;
    size_t last = 0;

    int64_t since = 0;

    if (w->looks)
        return tell_of_message(w, outcome);
    *outcome = SHMQ_OK;
    if (w->filtered)
        begin_search(w);
    while (total < most && *outcome == SHMQ_OK && shmq_may_deliver(w->session)) {
        if (put_off(w, &since, outcome))
            break;
        count = w->settled ? deliver_all_settled(w, most - total, whole, outcome, &last)
                           : deliver_leases(w, most - total, whole, outcome, &last);
        total += count;
        if (!searches_on(w, outcome) && !count)
            break;
        whole = whole && !w->filtered; /* a search begins with all that there is */
    }
    if (total && !w->subscribes)
        end_series(w->session, last);
    return total;
}

void shmq_deliver_copy(struct shmq_session *session, uint32_t id, const struct shmq_view *view,
                       bool more)
{
    size_t before = session->out.used;

    if (write_message(session, id, 0, view) && !more)
        end_series(session, before);
}
