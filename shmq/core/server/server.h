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
#ifndef SHMQ_SERVER_SERVER_H
#define SHMQ_SERVER_SERVER_H

#include <semaphore.h>

#include "queue/select.h"
#include "protocol/frame.h"
#include "queue/message.h"
#include "server/outbox.h"
#include "queue/properties.h"
#include "queue/queue.h"

#define SHMQ_SCRATCH (256u << 10)  /* bytes received at once                              */
#define SHMQ_DIRECT (32u << 10)    /* bodies from this size on are received and sent in place */
#define SHMQ_OUT_HIGH (512u << 10) /* with this much output nothing more is begun         */
#define SHMQ_OUT_LOW (128u << 10)  /* and from here on it is again                        */
#define SHMQ_RUN 64u               /* operations in one critical section                  */
#define SHMQ_WAITERS 4096u         /* waiting CONSUMEs and subscriptions of a session     */
#define SHMQ_WHY_BYTES 256u        /* the most bytes of policy's reason for a refusal     */
#define SHMQ_DURABLE_REPLIES 65536u /* durable replies: with this many nothing is begun      */

#define SHMQ_NOT_ASKED 8u /* an addition to enum shmq_right: policy was not asked yet     */

struct shmq_session;
struct shmq_attached_queue;
struct shmq_engine;
struct shmq_durable_reply;

/* The callbacks of the process that runs the engine. Statuses are those of the wire. */
struct shmq_hooks {
    /* Attaches to the queue attached_queue->name: sets q, semaphores, views and data.
     * SHMQ_S_BUSY: it takes time; the session was parked if it may wait for it, else it takes
     * too long. */
    uint16_t (*attach)(struct shmq_session *session, struct shmq_attached_queue *attached_queue);
    void (*detach)(struct shmq_engine *engine, struct shmq_attached_queue *attached_queue);
    /* The session's rights to the queue of that name, which need not exist; 0: it may not know of
     * it. */
    uint8_t (*rights)(struct shmq_session *session, const char *name);
    /* Carries out a request that does not concern messages, and answers it with shmq_reply. `name`
     * is "" if the type has none. */
    void (*answer)(struct shmq_session *session, const struct shmq_frame *frame, const char *name,
                   const unsigned char *rest, uint32_t bytes);
    /* Compiles an expression: a filter request to be freed, or NULL and the reason, a text of at
     * most SHMQ_WHY_BYTES. */
    struct shmq_filter_request *(*compile)(struct shmq_engine *engine, const unsigned char *text,
                                           uint32_t bytes, char why[SHMQ_WHY_BYTES]);
    /* Does pending maintenance: dead processes, dead letters on their way. */
    void (*tend)(struct shmq_attached_queue *attached_queue);
    /* The queue contradicts itself, and is unusable: to be logged. */
    void (*failed)(struct shmq_attached_queue *attached_queue);
    /* A session waits for a message: from now on shmq_attached_queue_serve must be called whenever
     * one may have come, until it returns false. `filtered`: shmq_attached_queue_serve_filtered,
     * whenever one has arrived. */
    void (*wait)(struct shmq_attached_queue *attached_queue, bool filtered);
    /* A session waits for the disk: from now on shmq_attached_queue_confirm must be called whenever
     * the queue's journal has progressed, until it returns false. */
    void (*confirm)(struct shmq_attached_queue *attached_queue);
};

/* The limits of an engine. Times in ns; 0: no limit. */
struct shmq_limits {
    uint32_t max_frame;
    uint32_t unsettled; /* messages leased by one session                          */
    uint64_t unsettled_bytes;
    int64_t handshake; /* until a HELLO with a valid token, if one is required    */
    int64_t frame; /* from a frame's first byte to its last                   */
    int64_t idle; /* between two frames                                      */
    bool token_required;
};

/* A message that is leased by a session. */
struct shmq_held_lease {
    uint64_t receipt; /* 0: none                                                */
    struct shmq_queue_session *queue_session;
    struct shmq_waiter *of; /* the subscription whose credit it uses, or NULL         */
    uint32_t next, prev; /* slots: the others of the queue session, oldest first            */
    uint32_t bytes;
    uint32_t number; /* of the subscription's messages, from 0 on              */
};

/* The filter of a waiter, and the state of its search. */
struct shmq_filter_request {
    struct shmq_filter filter; /* of `code`                                              */
    struct shmq_choice choice;
    bool looks; /* something may have come since it last looked           */
    bool searches; /* it has not reached the end of the queue yet            */
    bool again; /* something has come since that search began             */
    unsigned char code[];
};

/* A waiting CONSUME, or a subscription. */
struct shmq_waiter {
    struct shmq_session *session;
    struct shmq_queue_session *queue_session;
    struct shmq_waiter *next,
        *prev; /* in the attached queue's queue, if `queued`                 */
    struct shmq_waiter *peer, *peer_before; /* the session's others                      */
    struct shmq_filter_request *filtered; /* NULL: it takes any message */
    int64_t until; /* of a CONSUME: monotonic ns, or INT64_MAX         */
    uint32_t id;
    uint32_t most; /* messages; of a subscription, unsettled ones      */
    uint32_t used; /* of these: its held leases                            */
    uint32_t delivered; /* messages of a subscription, modulo 2^32          */
    uint32_t handed; /* of these, handed to the application, as it reports */
    bool tells;
    bool subscribes;
    bool settled; /* on delivery                                      */
    bool queued;
    bool ended; /* kept only for its held leases                        */
    bool last_look; /* ends with its search, whatever the result        */
    bool parks; /* its session is parked until it ends              */
};

/* Deferred work for a queue whose lock was not free. */
enum shmq_deed { SHMQ_RETURN_IT, SHMQ_RETURN_UNSEEN, SHMQ_ABANDON_IT, SHMQ_UNPIN_IT };

struct shmq_owed {
    enum shmq_deed deed;
    uint64_t what; /* a receipt; SHMQ_UNPIN_IT: a slot                 */
};

struct shmq_attached_queue {
    struct shmq_queue *q;
    struct shmq_engine *engine;
    void *data; /* the hooks'                                       */
    sem_t *semaphores[2];
    uint32_t *views; /* counts our pins                                  */
    struct shmq_held_lease *held_leases; /* by slot                                          */
    struct shmq_waiter *first, *last; /* in the order of their turns                     */
    struct shmq_waiter *filtered_first, *filtered_last; /* those with a filter               */
    struct shmq_attached_queue *next; /* in the same bucket                               */
    struct shmq_attached_queue *next_touched;
    struct shmq_attached_queue *next_pending;
    struct shmq_owed *owed; /* deeds, in their order                            */
    uint32_t owed_count, owed_room;
    int64_t held_since; /* since when its lock is not free; 0: it is        */
    int64_t tended_at;
    int64_t unused_at; /* when the last user left                          */
    uint64_t awaited_seq; /* the highest sequence number that a reply waits for */
    uint32_t durable_replies; /* replies that wait for its journal                */
    uint32_t users; /* queue sessions, durable replies, and unsent outgoing bodies              */
    bool touched; /* something may have come, or be due               */
    bool awaited; /* hooks->wait was called                           */
    bool filtered_awaited; /* the same for waiters with a filter               */
    bool confirming; /* hooks->confirm was called                        */
    bool gone; /* not in the table any more                        */
    bool pending; /* in the engine's list of these                     */
    bool owes_posts; /* sleepers must be woken                           */
    uint8_t name_bytes;
    char name[SHMQ_NAME_MAX + 1];
};

struct shmq_queue_session {
    struct shmq_attached_queue *attached_queue;
    struct shmq_session *session;
    struct shmq_queue_session *next; /* of the session, the last used first              */
    uint32_t first, last; /* held leases                                          */
    uint32_t count; /* held leases                                          */
    uint32_t waiters;
    uint8_t rights;
};

/* A message to be put into a queue, and the result. */
struct shmq_item {
    struct shmq_put put;
    struct shmq_properties properties;
    uint64_t hash[2]; /* of its dedupe id, to which put.dedupe points                 */
    uint64_t seq;
    uint32_t id;
    uint16_t status;
    uint8_t flags;
    const char *why; /* text for the answer, or NULL                                 */
    const unsigned char *from; /* its frame                                              */
};

/* A large body being received: into the queue, or discarded if it was refused. */
struct shmq_large_body {
    struct shmq_item item;
    struct shmq_queue_session *queue_session;
    uint64_t receipt; /* of the space                                                */
    unsigned char *next; /* for the next byte; NULL: discarded                           */
    uint32_t left; /* bytes to come                                               */
    bool active;
};

struct shmq_session {
    struct shmq_engine *engine;
    struct shmq_session *next, *prev; /* the engine's                                     */
    void *data; /* the hooks'                                      */
    struct shmq_queue_session *queue_sessions;
    struct shmq_waiter *waiters;
    struct shmq_outbox out;
    unsigned char *received; /* the beginning of a frame, or frames held back */
    size_t received_used, received_room;
    struct shmq_large_body large_body;
    struct shmq_durable_reply
        *durable_replies; /* a ring: replies that wait for the disk          */
    uint32_t durable_reply_first, durable_reply_count, durable_reply_room;
    uint64_t tickets; /* given so far                                    */
    struct shmq_session *promising_next, *promising_before; /* the engine's, if it has any */
    int64_t began_at;
    int64_t heard_at; /* when it began, or its last whole frame came     */
    int64_t moved_at; /* when output was last sent, or there was none       */
    int64_t partial_at; /* when the incomplete frame began; 0: none        */
    uint64_t unsettled_bytes;
    uint32_t unsettled;
    uint32_t waiter_count;
    uint32_t delayed; /* requests that policy has yet to answer          */
    bool authorised; /* a HELLO succeeded, or none is required          */
    bool held; /* frames wait: there is much to send or to confirm, or
                                       * it is parked                                    */
    bool parked; /* one of its requests waits, and all behind it    */
    bool unread; /* the frame that is carried out is put back       */
    const unsigned char *unread_at; /* from here on; NULL: from its beginning          */
    struct shmq_attached_queue *parked_at; /* waits for this one's lock; NULL: for something else */
    uint32_t settled; /* receipts of the parked request that were settled */
    unsigned char *refused; /* of these, the refused ones, as received         */
    uint32_t refused_bytes;
    bool carrying; /* its frames are being carried out                */
    bool promising; /* in the engine's list of these                    */
    bool fin; /* the peer sends no more                          */
    bool finished; /* nothing more is carried out                     */
    bool broken; /* its memory ran out                              */
    bool blocked; /* has waiters that were passed over               */
    bool output_pending; /* in the engine's list of these                    */
    struct shmq_session *next_pending;
};

#define SHMQ_BUCKETS 256

struct shmq_engine {
    const struct shmq_hooks *hooks;
    void *data;
    struct shmq_limits limits;
    struct shmq_session *sessions;
    struct shmq_session *output_pending;
    struct shmq_session *promising; /* those with replies that wait for the disk       */
    struct shmq_session *current; /* the one being fed                               */
    struct shmq_attached_queue *touched;
    struct shmq_attached_queue *pending; /* those that a tick looks at again soon           */
    struct shmq_attached_queue *buckets[SHMQ_BUCKETS];
    unsigned char *scratch;
    uint32_t session_count;
    uint32_t held_lease_count;
    int64_t expire_at; /* the earliest end of a CONSUME's wait            */
    int64_t review_at, patrol_at; /* the next times of these in shmq_engine_tick      */
    int64_t retry_at; /* the same for what is pending                    */
    int64_t search_from, search_spent; /* a span of time, and how much of it searches took */
    bool draining;
};

#endif
