/* The server's side of the DEADBEEF protocol, without I/O: bytes in, operations on attached
 * queues, bytes out. This is what its files share.
 *
 *   engine ──┬── attached queues      a queue that this process has attached to, its waiters, and
 *            │                        its messages that are out: a held lease by its slot
 *            └── sessions             a connection: its incomplete frame, its bytes to be sent, its
 *                  │                  requests that wait
 *                  └── queue sessions a session's use of an attached queue: rights, held leases
 *
 * An engine and everything that belongs to it are used by one thread. Hooks ask policy for what the
 * protocol leaves open. Unlike the core below, this folder allocates memory, all of it private; a
 * session for which there is none ends. */
#pragma once

#include <semaphore.h>

#include "protocol/frame.h"
#include "queue/filter.h"
#include "queue/message.h"
#include "queue/properties.h"
#include "queue/queue.h"
#include "server/outbox.h"

#define SHMQ_SCRATCH (256u << 10)  /* bytes received at once */
#define SHMQ_DIRECT (32u << 10)    /* bodies from this size on are received and sent in place */
#define SHMQ_OUT_HIGH (512u << 10) /* with this much output nothing more is begun */
#define SHMQ_OUT_LOW (128u << 10)  /* and from here on it is again */
#define SHMQ_RUN 64u               /* operations in one critical section */
#define SHMQ_WAITERS 4096u         /* waiting CONSUMEs, READYs and subscriptions of a session */
#define SHMQ_WHY_BYTES 256u        /* the most bytes of policy's reason for a refusal */
#define SHMQ_DURABLE_REPLIES 65536u /* durable replies: with this many nothing is begun */
#define SHMQ_REPORTED_WITHIN 1000000000ll /* ns that the leases of a dead client await a report */

#define SHMQ_NOT_ASKED 0x80u /* an addition to enum shmq_right: policy was not asked yet */

_Static_assert(!(SHMQ_NOT_ASKED & (SHMQ_MAY_PRODUCE | SHMQ_MAY_CONSUME | SHMQ_MAY_ADMIN)),
               "no right has this bit");

struct shmq_session;
struct shmq_attached_queue;
struct shmq_engine;
struct shmq_durable_reply;

/* The callbacks of the process that runs the engine. Statuses are those of the wire. */
struct shmq_hooks {
    /* Attaches to the queue queue->name: sets q, semaphores, views and data.
     * SHMQ_S_BUSY: it takes time; the session was parked if it may wait for it, else it takes
     * too long. */
    uint16_t (*attach)(struct shmq_session *session, struct shmq_attached_queue *queue);
    void (*detach)(struct shmq_engine *engine, struct shmq_attached_queue *queue);
    /* The session's rights to the queue of that name, which need not exist; 0: it may not know of
     * it. */
    uint8_t (*rights)(struct shmq_session *session, const char *name);
    /* Before the session leases or waits for the first time at a queue that ends by itself: counts
     * it among the queue's consumers until the session ends. Otherwise the status, and for
     * SHMQ_S_FORBIDDEN the reason, a text of at most SHMQ_WHY_BYTES. */
    uint16_t (*consume)(struct shmq_session *session, struct shmq_attached_queue *queue,
                        char why[SHMQ_WHY_BYTES]);
    /* A request of that type was refused: the session does not have the right to the queue of that
     * name; 0: it has no right to it at all. */
    void (*refused)(struct shmq_session *session, uint8_t type, const char *name, uint8_t right);
    /* Carries out a request that does not concern messages, and answers it with shmq_reply. `name`
     * is "" if the type has none. */
    void (*answer)(struct shmq_session *session, const struct shmq_frame *frame, const char *name,
                   const unsigned char *rest, uint32_t bytes);
    /* Compiles an expression: a filter request to be freed, or NULL and the reason, a text of at
     * most SHMQ_WHY_BYTES. */
    struct shmq_filter_request *(*compile)(struct shmq_engine *engine, const unsigned char *text,
                                           uint32_t bytes, char why[SHMQ_WHY_BYTES]);
    /* Does pending maintenance: dead processes, dead letters on their way. */
    void (*tend)(struct shmq_attached_queue *queue);
    /* The queue contradicts itself, and is unusable: to be logged. */
    void (*failed)(struct shmq_attached_queue *queue);
    /* A session waits for a message: from now on shmq_attached_queue_serve must be called whenever
     * one may have come, until it returns false. `filtered`: shmq_attached_queue_serve_filtered,
     * whenever one has arrived. */
    void (*wait)(struct shmq_attached_queue *queue, bool filtered);
    /* A session waits for the disk: from now on shmq_attached_queue_confirm must be called whenever
     * the queue's journal has progressed, until it returns false. */
    void (*confirm)(struct shmq_attached_queue *queue);
};

/* The limits of an engine. Times in ns; 0: no limit. */
struct shmq_limits {
    uint32_t max_frame;
    uint32_t unsettled; /* messages leased by one session */
    uint64_t unsettled_bytes;
    int64_t handshake; /* until a HELLO with a valid token, if one is required */
    int64_t frame; /* from a frame's first byte to its last */
    int64_t idle; /* between two frames */
    bool token_required;
};

/* A message that is leased by a session. */
struct shmq_held_lease {
    uint64_t receipt; /* 0: none */
    struct shmq_queue_session *queue_session;
    struct shmq_waiter *of; /* the subscription whose credit it uses, or NULL */
    uint32_t next, prev; /* slots: the others of the queue session, oldest first */
    uint32_t bytes;
    uint32_t number; /* of the subscription's messages, from 0 on */
};

/* The filter of a waiter, and the state of its search. */
struct shmq_filter_request {
    struct shmq_filter filter; /* of `code` */
    struct shmq_selection selection;
    bool looks; /* something may have come since it last looked */
    bool searches; /* it has not reached the end of the queue yet */
    bool again; /* something has come since that search began */
    unsigned char code[];
};

/* A waiting CONSUME or READY, or a subscription. */
struct shmq_waiter {
    struct shmq_session *session;
    struct shmq_queue_session *queue_session;
    struct shmq_waiter *next, *prev; /* in its attached queue's line, if `queued` */
    struct shmq_waiter *peer, *peer_before; /* the session's others */
    struct shmq_filter_request *filtered; /* NULL: it takes any message */
    int64_t until; /* of all but a SUBSCRIBE: monotonic ns, or INT64_MAX */
    uint32_t id;
    uint32_t most; /* messages; of a subscription, unsettled ones */
    uint32_t used; /* of these: its held leases */
    uint32_t delivered; /* messages of a subscription, modulo 2^32 */
    uint32_t handed; /* of these, handed to the application, as it reports */
    bool tells;
    bool subscribes;
    bool looks; /* a READY: it is notified of a message, and leases none */
    bool settled; /* on delivery */
    bool queued;
    bool ended; /* kept only for its held leases */
    bool last_look; /* ends with its search, whatever the result */
    bool parks; /* its session is parked until it ends */
};

/* Deferred work for a queue whose lock was not free. */
enum shmq_owed_kind {
    SHMQ_RETURN_IT,
    SHMQ_RETURN_UNSEEN,
    SHMQ_RETURN_SOON, /* unless the supervisor of its holder settles it with the reason before */
    SHMQ_ABANDON_IT,
    SHMQ_UNPIN_IT
};

struct shmq_owed {
    enum shmq_owed_kind kind;
    uint64_t what; /* a receipt; SHMQ_UNPIN_IT: a slot */
};

struct shmq_attached_queue {
    struct shmq_queue *q;
    struct shmq_engine *engine;
    void *data; /* the hooks' */
    sem_t *semaphores[2];
    uint32_t *views; /* counts our pins */
    struct shmq_held_lease *held_leases; /* by slot */
    struct shmq_waiter *first, *last; /* in the order of their turns */
    struct shmq_waiter *filtered_first, *filtered_last; /* those with a filter */
    struct shmq_attached_queue *next; /* in the same bucket */
    struct shmq_attached_queue *next_touched;
    struct shmq_attached_queue *next_pending;
    struct shmq_owed *owed; /* in their order */
    uint32_t owed_count, owed_room;
    int64_t held_since; /* since when its lock is not free; 0: it is */
    int64_t tended_at;
    int64_t unused_at; /* when the last user left */
    uint64_t awaited_seq; /* the highest sequence number that a reply waits for */
    uint32_t durable_replies; /* replies that wait for its journal */
    uint32_t users; /* queue sessions, durable replies, and unsent outgoing bodies */
    bool touched; /* something may have come, or be due */
    bool awaited; /* hooks->wait was called */
    bool filtered_awaited; /* the same for waiters with a filter */
    bool confirming; /* hooks->confirm was called */
    bool gone; /* not in the table any more */
    bool pending; /* in the engine's list of these */
    bool owes_posts; /* sleepers must be woken */
    uint8_t name_bytes;
    char name[SHMQ_NAME_MAX + 1];
};

struct shmq_queue_session {
    struct shmq_attached_queue *queue;
    struct shmq_session *session;
    struct shmq_queue_session *next; /* of the session, the last used first */
    uint32_t first, last; /* held leases */
    uint32_t count; /* held leases */
    uint32_t waiters;
    uint8_t rights;
    bool consumes; /* hooks->consume has accepted it */
};

/* A message to be put into a queue, and the result. */
struct shmq_item {
    struct shmq_put put;
    struct shmq_properties properties;
    uint64_t hash[2]; /* of its dedupe id, to which put.dedupe points */
    uint64_t seq;
    uint32_t id;
    uint16_t status;
    uint8_t flags;
    const char *why; /* text for the answer, or NULL */
    const unsigned char *from; /* its frame */
};

/* A large body being received: into the queue, or discarded if it was refused. */
struct shmq_large_body {
    struct shmq_item item;
    struct shmq_queue_session *queue_session;
    uint64_t receipt; /* of the space */
    unsigned char *next; /* for the next byte; NULL: discarded */
    uint32_t left; /* bytes to come */
    bool active;
};

struct shmq_session {
    struct shmq_engine *engine;
    struct shmq_session *next, *prev; /* the engine's */
    void *data; /* the hooks' */
    struct shmq_queue_session *queue_sessions;
    struct shmq_waiter *waiters;
    struct shmq_outbox out;
    unsigned char *received; /* the beginning of a frame, or frames held back */
    size_t received_used, received_room;
    struct shmq_large_body large_body;
    struct shmq_durable_reply *durable_replies; /* a ring: replies that wait for the disk */
    uint32_t durable_reply_first, durable_reply_count, durable_reply_room;
    uint64_t tickets; /* given so far */
    struct shmq_session *next_durable, *prev_durable; /* the engine's, if it has any */
    int64_t began_at;
    int64_t heard_at; /* when it began, or its last whole frame came */
    int64_t moved_at; /* when output was last sent, or there was none */
    int64_t partial_at; /* when the incomplete frame began; 0: none */
    uint64_t unsettled_bytes;
    uint32_t unsettled;
    uint32_t waiter_count;
    uint32_t delayed; /* requests that policy has yet to answer */
    uint8_t type; /* of the request that is carried out */
    bool owns; /* queues that are deleted when it ends: it may be idle */
    bool authorised; /* a HELLO succeeded, or none is required */
    bool supervised; /* another process reports the death of its client */
    bool held; /* frames wait: there is much to send or to confirm, or it is parked */
    bool parked; /* one of its requests waits, and all behind it */
    bool unread; /* the frame that is carried out is put back */
    const unsigned char *unread_at; /* from here on; NULL: from its beginning */
    struct shmq_attached_queue *parked_at; /* waits for this one's lock; NULL: for something else */
    uint32_t settled; /* receipts of the parked request that were settled */
    unsigned char *refused; /* of these, the refused ones, as received */
    uint32_t refused_bytes;
    bool carrying; /* its frames are being carried out */
    bool has_durable_replies; /* in the engine's list of these */
    bool fin; /* the peer sends no more */
    bool finished; /* nothing more is carried out */
    bool broken; /* its memory ran out */
    bool blocked; /* has waiters that were passed over */
    bool output_pending; /* in the engine's list of these */
    struct shmq_session *next_pending;
};

#define SHMQ_BUCKETS 256

struct shmq_engine {
    const struct shmq_hooks *hooks;
    void *data;
    struct shmq_limits limits;
    struct shmq_session *sessions;
    struct shmq_session *output_pending;
    struct shmq_session *durable_sessions; /* those with replies that wait for the disk */
    struct shmq_session *current; /* the one being fed */
    char why[SHMQ_WHY_BYTES]; /* of the last refusal of shmq_queue_session_at; "": none known */
    struct shmq_attached_queue *touched;
    struct shmq_attached_queue *pending; /* those that a tick looks at again soon */
    struct shmq_attached_queue *buckets[SHMQ_BUCKETS];
    unsigned char *scratch;
    uint32_t session_count;
    uint32_t held_lease_count;
    int64_t expire_at; /* the earliest end of a CONSUME's wait */
    int64_t review_at, patrol_at; /* the next times of these in shmq_engine_tick */
    int64_t retry_at; /* the same for what is pending */
    int64_t search_from, search_spent; /* a span of time, and how much of it searches took */
    bool draining;
};

/* ---- session.c: what requests need of their session: replies, and waiting ---- */

/* Ends the session: its memory ran out, or its peer reads nothing. */
void shmq_session_break(struct shmq_session *session);

/* Room for `size` bytes of output, or NULL; the session is broken then. */
unsigned char *shmq_session_room(struct shmq_session *session, size_t size);

/* Writes a REPLY; message id 0 is answered, too. */
void shmq_reply(struct shmq_session *session, uint32_t id, uint16_t status, const void *payload,
                uint32_t bytes);

/* Writes a REPLY whose payload gives the reason, for a status below 0x8000. */
void shmq_refuse_request(struct shmq_session *session, uint32_t id, uint16_t status,
                         const char *why);

/* The same if a reply is wanted: message id 0 gets none. */
static inline void shmq_refuse_if_asked(struct shmq_session *session, uint32_t id, uint16_t status,
                                        const char *why)
{
    if (id)
        shmq_refuse_request(session, id, status, why);
}

/* Lets policy answer later, with shmq_answer_late, without holding back other requests: false if
 * too many of the session's requests wait. Once the peer sends no more, it is not answered. */
bool shmq_answer_later(struct shmq_session *session);
void shmq_answer_late(struct shmq_session *session, uint32_t id, uint16_t status,
                      const void *payload, uint32_t bytes);

/* The session has output, or must be closed. */
void shmq_mark_pending(struct shmq_session *session);

/* Consecutive frames in the received bytes. */
struct shmq_frames {
    const unsigned char *at, *end;
};

/* Holds back all later requests until shmq_unpark. */
void shmq_park(struct shmq_session *session);

/* The same, and the current frame is put back, to be carried out again then. `at`: so are the
 * frames read behind it, from there on; NULL: it was the last. No reply is written before the
 * frame's end. */
void shmq_put_back(struct shmq_session *session, const unsigned char *at);

/* Puts the request back until the attached queue's lock is free. False if it has waited long
 * enough: it must be refused with SHMQ_S_BUSY. */
bool shmq_park_at(struct shmq_session *session, struct shmq_attached_queue *queue,
                  const unsigned char *at);

/* Whether the next frame is complete and of that type, with a valid header. */
bool shmq_next_is(const struct shmq_session *session, const struct shmq_frames *frames,
                  uint8_t type, struct shmq_frame *frame);

/* The request that was parked without an attached queue is answered, or may be carried out
 * again: the session continues behind it once it is reported, see shmq_engine_next_pending. */
void shmq_unpark(struct shmq_session *session);

/* The fatal status of the frame with that header, or SHMQ_S_OK. */
uint16_t shmq_fatal_status(const struct shmq_session *session, const unsigned char *header,
                           struct shmq_frame *frame);

/* ---- attached_queue.c ---- */

/* Attached queues: the queues that an engine has attached to, their locks, and the deferred work
 * for a queue whose lock was not free. */

/* Takes the get side or the whole queue: SHMQ_OK, or the error. SHMQ_BUSY: another process holds
 * the lock for longer than this thread may wait. That is remembered: until the lock is free,
 * later attempts return at once, and each tick tries again. */
int shmq_attached_queue_lock(struct shmq_attached_queue *queue, bool whole);

/* Whether a request may still wait for the lock: only for a limited time. */
bool shmq_attached_queue_is_awaited(const struct shmq_attached_queue *queue);

/* Defers the operation, for lack of the lock, to a later tick. */
void shmq_attached_queue_owe(struct shmq_attached_queue *queue, enum shmq_owed_kind kind,
                             uint64_t what);

/* Does it at once. Holds the lock. */
void shmq_attached_queue_do(struct shmq_attached_queue *queue, const struct shmq_owed *owed,
                            int64_t now);

/* Has a tick look at it soon. */
void shmq_attached_queue_later(struct shmq_attached_queue *queue);

/* Does the deferred work: whether the lock was free, or the work is obsolete. */
bool shmq_attached_queue_do_owed(struct shmq_attached_queue *queue);

/* Releases the lock, and wakes the sleepers for which there is something. */
void shmq_attached_queue_unlock(struct shmq_attached_queue *queue);

/* The same for the put-side lock. */
void shmq_attached_queue_unlock_puts(struct shmq_attached_queue *queue);

/* Reclaims what dead processes hold, and the like, unless that was done a moment ago; whether it
 * was done now. */
bool shmq_attached_queue_tend(struct shmq_attached_queue *queue);

/* Has its waiters served at the end of the request. */
void shmq_attached_queue_touch(struct shmq_attached_queue *queue);

/* Drops one reference to it. */
void shmq_attached_queue_release(struct shmq_attached_queue *queue);

/* An outgoing body was sent, or never will be: unpins it. */
void shmq_outgoing_body_gone(struct shmq_outgoing_body *outgoing_body);

/* ---- durable_reply.c: replies held back until the changes they report are on disk ---- */

/* A reply that is held back, and its condition. */
struct shmq_durable_reply {
    struct shmq_attached_queue *queue; /* once its queue has `seq` on disk; NULL: at once */
    uint64_t seq;
    uint64_t ticket; /* not 0 until policy has given the reply */
    char *why; /* text, freed with this; or NULL: use the payload */
    uint32_t why_bytes;
    uint32_t id;
    uint16_t status;
    uint8_t bytes;
    unsigned char payload[12];
};

/* Replies when the condition holds, after all earlier durable replies. `why` is copied. */
void shmq_durable_reply(struct shmq_session *session,
                        const struct shmq_durable_reply *durable_reply, const char *why);

/* Reserves the place of a reply that policy gives with shmq_durable_reply_settle; returns its
 * ticket, never 0. */
uint64_t shmq_durable_reply_later(struct shmq_session *session, uint32_t id);
void shmq_durable_reply_settle(struct shmq_session *session, uint64_t ticket, uint16_t status,
                               const char *payload, uint32_t bytes);

/* Asks the queue's journal for what the attached queue's durable replies wait for. */
void shmq_durable_replies_ask(struct shmq_attached_queue *queue);

/* The journal of the attached queue may have progressed: sends the replies whose changes are on
 * disk, for every session. Returns whether any durable reply still waits for the attached queue. */
bool shmq_attached_queue_confirm(struct shmq_attached_queue *queue);

/* The attached queue is gone: replies whose changes are not on disk get that status. */
void shmq_durable_replies_end(struct shmq_attached_queue *queue, uint16_t status);

/* Drops the session's durable replies. */
void shmq_durable_replies_drop(struct shmq_session *session);

/* ---- waiters.c: waiting CONSUMEs and READYs, and subscriptions ---- */

/* The arguments of a CONSUME, a SUBSCRIBE or a READY. */
struct shmq_consume_request {
    uint32_t id;
    uint32_t most; /* messages, or the credit */
    int64_t until; /* of all but a SUBSCRIBE: monotonic ns; 0: it does not wait */
    bool subscribes;
    bool looks; /* a READY */
    bool settled;
    bool tells; /* reports hand-outs to the application with HANDED */
    const unsigned char *where; /* an expression, or NULL */
    uint16_t where_bytes;
    struct shmq_filter_request *filtered; /* the compiled expression; the waiter takes it over */
};

/* Makes a waiter of the session, not in its attached queue's list yet; NULL without memory: then
 * the filter is freed. */
struct shmq_waiter *shmq_waiter_begin(struct shmq_queue_session *queue_session,
                                      const struct shmq_consume_request *request);

/* Ends the waiter; one with leases is freed with its last. shmq_waiter_answer: with that status,
 * unless it is OK. */
void shmq_waiter_end(struct shmq_waiter *w);
void shmq_waiter_answer(struct shmq_waiter *w, uint16_t status);

/* Enters the end of its attached queue's list, or leaves the list. */
void shmq_waiter_enqueue(struct shmq_waiter *w);
void shmq_waiter_dequeue(struct shmq_waiter *w);

static inline bool shmq_waiter_has_credit(const struct shmq_waiter *w)
{
    return !w->subscribes || w->settled || w->used < w->most;
}

/* Whether its filter has not reached the end of the queue yet. */
static inline bool shmq_waiter_searches(const struct shmq_waiter *w)
{
    return w->filtered && w->filtered->searches;
}

/* The session's subscription, or READY that waits, with that id, or NULL. */
struct shmq_waiter *shmq_subscription(struct shmq_session *session, uint32_t id);

/* Ends the subscription or the READY; its leases continue. */
void shmq_unsubscribe(struct shmq_waiter *subscription);

/* The first `count` messages of the subscription were, or will at once be, handed out. */
void shmq_waiter_handed(struct shmq_waiter *subscription, uint32_t count);

/* One held lease of the subscription is over; an ended subscription is freed with its last. */
void shmq_waiter_credit(struct shmq_waiter *subscription);

/* Serves the session's waiters again that were passed over. */
void shmq_waiters_unblock(struct shmq_session *session);

/* Ends the session's CONSUMEs and READYs whose time is over; returns when the next one's is. */
int64_t shmq_waiters_expire(struct shmq_session *session, int64_t now);

/* Refuses those that end with their search and cannot have the lock for it. */
void shmq_waiters_refuse(struct shmq_attached_queue *queue);

/* End all waiters of the session, or of the attached queue: answered with that status, or not if it
 * is OK. */
void shmq_waiters_leave(struct shmq_session *session, uint16_t status);
void shmq_waiters_end(struct shmq_attached_queue *queue, uint16_t status);

/* ---- lease_table.c ---- */

/* Held leases: which messages a session has leased, so that they return when its connection ends,
 * and use no credit once they are settled, by any process. */

/* The session of the queue session has leased the message. */
void shmq_held_lease_begin(struct shmq_queue_session *queue_session, const struct shmq_view *view,
                           struct shmq_waiter *of);

/* The lease of that receipt is over, if it is this engine's. */
void shmq_held_lease_end(struct shmq_attached_queue *queue, uint64_t receipt);

/* Returns the session's leases to their queues. */
void shmq_held_leases_return(struct shmq_session *session);

/* Ends the session's held leases that have run out, or were settled elsewhere. */
void shmq_held_leases_review(struct shmq_session *session, int64_t now);

/* The queue is gone, and all its leases with it. */
void shmq_held_leases_void(struct shmq_attached_queue *queue);

/* How many more messages the session may lease, and how many bytes: the last message may exceed
 * those. */
uint32_t shmq_lease_room(const struct shmq_session *session, uint64_t *bytes);

/* ---- queue_session.c ---- */

/* Queue sessions: a session's use of an attached queue, found by the queue's name; and the end
 * of an attached queue, with everything that waits for it. */

struct shmq_name {
    const unsigned char *at;
    uint16_t bytes;
};

/* Reads a name; false if it is not a valid queue name by shmq/api/names.py. */
bool shmq_read_name(struct shmq_reader *r, struct shmq_name *name);

static inline bool shmq_same_name(struct shmq_name a, struct shmq_name b)
{
    return a.bytes == b.bytes && !memcmp(a.at, b.at, a.bytes);
}

#define SHMQ_TEXT_OF(number) #number
#define SHMQ_AS_TEXT(macro) SHMQ_TEXT_OF(macro)
#define SHMQ_WHY_NAME \
    "a name is 1 to " SHMQ_AS_TEXT(SHMQ_NAME_MAX) " characters out of A-Z a-z 0-9 . _ : -"

/* The session's queue session for the queue of that name, which is attached to if necessary: NULL,
 * and the status, if no queue exists, the session may not know of it, or it lacks the right; the
 * reason is in `why` of the engine.
 * Valid until the end of the request, and as long as it has held leases or waiters. */
struct shmq_queue_session *shmq_queue_session_at(struct shmq_session *session,
                                                 struct shmq_name name, enum shmq_right right,
                                                 uint16_t *status);

/* The same for a request that takes no message: it makes the session no consumer of a queue that
 * ends by itself, and the queue may be exclusive to another session. */
struct shmq_queue_session *shmq_looking_session_at(struct shmq_session *session,
                                                   struct shmq_name name, enum shmq_right right,
                                                   uint16_t *status);

/* The session leaves all its queue sessions that have no held leases and no waiters. */
void shmq_queue_sessions_leave(struct shmq_session *session);

/* The wire status of an outcome of the core. A queue that is gone or damaged is forgotten. */
uint16_t shmq_attached_queue_status(struct shmq_attached_queue *queue, int status);

/* Removes the attached queue from the table: its waiters end with that status, its leases are
 * void. */
void shmq_attached_queue_forget(struct shmq_attached_queue *queue, uint16_t status);
