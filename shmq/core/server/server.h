/* The server's side of the DEADBEEF protocol, without I/O: bytes in, operations on attached
 * queues, bytes out. This is what its files share.
 *
 *   engine ──┬── attached queues      a queue that this process has attached to, its waiters, and
 *            │                        its messages that are out: a held lease by its slot
 *            └── sessions             a connection: its incomplete frame, its bytes to be sent, its
 *                  │                  requests that wait
 *                  └── queue sessions a session's use of an attached queue: rights, held leases
 *
 * An engine and all that belongs to it are used by one thread. What the protocol leaves to policy
 * is asked through hooks. Unlike the core below, this folder allocates memory, all of it private;
 * a session for which there is none ends. */
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
#define SHMQ_DIRECT (32u << 10)    /* bodies from here on are received and sent in place  */
#define SHMQ_OUT_HIGH (512u << 10) /* with so much to send nothing more is begun          */
#define SHMQ_OUT_LOW (128u << 10)  /* and it is again from here on                        */
#define SHMQ_RUN 64u               /* operations in one critical section                  */
#define SHMQ_WAITERS 4096u         /* CONSUMEs that wait and subscriptions of a session   */
#define SHMQ_WHY_BYTES 256u        /* of a text that policy gives for a refusal           */
#define SHMQ_DURABLE_REPLIES 65536u /* answers that wait for the disk: then nothing is begun */

#define SHMQ_NOT_ASKED 8u /* beside enum shmq_right: policy has not been asked yet        */

struct shmq_session;
struct shmq_attached_queue;
struct shmq_engine;
struct shmq_durable_reply;

/* What the process that runs the engine provides. Statuses are those of the wire. */
struct shmq_hooks {
    /* Attaches to the queue attached queue->name: sets q, semaphores, views and data. SHMQ_S_BUSY:
     * that takes a while; the session was parked if it can be waited for, else it takes too
     * long. */
    uint16_t (*attach)(struct shmq_session *session, struct shmq_attached_queue *attached_queue);
    void (*detach)(struct shmq_engine *engine, struct shmq_attached_queue *attached_queue);
    /* The session's rights to what is, or would be, a queue of that name; 0: it may not know
     * of it. */
    uint8_t (*rights)(struct shmq_session *session, const char *name);
    /* Carries out a request that is not in the path of messages, and answers it by
     * shmq_reply. `name` is "" where the type has none. */
    void (*answer)(struct shmq_session *session, const struct shmq_frame *frame, const char *name,
                   const unsigned char *rest, uint32_t bytes);
    /* Compiles an expression: what a waiter is to have, to be freed, or NULL, and why, a text
     * of SHMQ_WHY_BYTES at most. */
    struct shmq_filter_request *(*compile)(struct shmq_engine *engine, const unsigned char *text,
                                           uint32_t bytes, char why[SHMQ_WHY_BYTES]);
    /* Does what is due beside the operations: dead processes, dead letters on their way. */
    void (*tend)(struct shmq_attached_queue *attached_queue);
    /* The queue contradicts itself, and is of no more use: to be logged. */
    void (*failed)(struct shmq_attached_queue *attached_queue);
    /* Somebody waits for a message: from now on shmq_attached_queue_serve is to be called whenever
     * one may have come, until it returns false. `filtered`: shmq_attached_queue_serve_filtered,
     * whenever one has arrived. */
    void (*wait)(struct shmq_attached_queue *attached_queue, bool filtered);
    /* Somebody waits for the disk: from now on shmq_attached_queue_confirm is to be called whenever
     * the queue's journal has come further, until it returns false. */
    void (*confirm)(struct shmq_attached_queue *attached_queue);
};

/* What an engine allows. Times in ns; 0: no limit. */
struct shmq_limits {
    uint32_t max_frame;
    uint32_t unsettled; /* messages leased by one session                          */
    uint64_t unsettled_bytes;
    int64_t handshake; /* until a HELLO with a good token, where one is asked for */
    int64_t frame; /* from a frame's first byte to its last                   */
    int64_t idle; /* between two frames                                      */
    bool token_required;
};

/* A message that is leased by a session. */
struct shmq_held_lease {
    uint64_t receipt; /* 0: there is none                                       */
    struct shmq_queue_session *queue_session;
    struct shmq_waiter *of; /* the subscription whose credit it takes, or NULL        */
    uint32_t next, prev; /* slots: the others of the queue session, oldest first            */
    uint32_t bytes;
    uint32_t number; /* of the subscription's messages, from 0 on              */
};

/* What messages a waiter asks for. */
struct shmq_filter_request {
    struct shmq_filter filter; /* of `code`                                              */
    struct shmq_choice choice;
    bool looks; /* since it last looked, something may have come          */
    bool searches; /* it has not come to the end of the queue yet            */
    bool again; /* something has come since that search began             */
    unsigned char code[];
};

/* A CONSUME that waits, or a subscription. */
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
    uint32_t used; /* of these: the held leases that are its own           */
    uint32_t delivered; /* messages of a subscription, modulo 2^32          */
    uint32_t handed; /* of these, that the application got, as it tells  */
    bool tells;
    bool subscribes;
    bool settled; /* on delivery                                      */
    bool queued;
    bool ended; /* is there for its held leases alone                   */
    bool last_look; /* ends with its search, whatever that finds        */
    bool parks; /* its session is parked until it ends              */
};

/* What is still to be done to a queue whose lock could not be had. */
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
    struct shmq_waiter *filtered_first, *filtered_last; /* those who want something          */
    struct shmq_attached_queue *next; /* of the same bucket                               */
    struct shmq_attached_queue *next_touched;
    struct shmq_attached_queue *next_pending;
    struct shmq_owed *owed; /* deeds, in their order                            */
    uint32_t owed_count, owed_room;
    int64_t held_since; /* its lock cannot be had; 0: it can                */
    int64_t tended_at;
    int64_t unused_at; /* when the last user left                          */
    uint64_t awaited_seq; /* the highest sequence number that was promised    */
    uint32_t durable_replies; /* answers that wait for its journal                */
    uint32_t users; /* queue sessions, durable replies, and outgoing bodies on their way        */
    bool touched; /* something may have come, or be due               */
    bool awaited; /* hooks->wait was called                           */
    bool filtered_awaited; /* the same for those who want something            */
    bool confirming; /* hooks->confirm was called                        */
    bool gone; /* not to be found any more                         */
    bool pending; /* is in the engine's list of those                  */
    bool owes_posts; /* sleepers are to be woken                         */
    uint8_t name_bytes;
    char name[SHMQ_NAME_MAX + 1];
};

struct shmq_queue_session {
    struct shmq_attached_queue *attached_queue;
    struct shmq_session *session;
    struct shmq_queue_session *next; /* the session's, the last used first               */
    uint32_t first, last; /* held leases                                          */
    uint32_t count; /* held leases                                          */
    uint32_t waiters;
    uint8_t rights;
};

/* A message on its way into a queue, and what became of it. */
struct shmq_item {
    struct shmq_put put;
    struct shmq_properties properties;
    uint64_t hash[2]; /* of its dedupe id, where put.dedupe points                    */
    uint64_t seq;
    uint32_t id;
    uint16_t status;
    uint8_t flags;
    const char *why; /* text for the answer, or NULL                                 */
    const unsigned char *from; /* its frame                                              */
};

/* A large body that is being received: into the queue, or nowhere if it was refused. */
struct shmq_large_body {
    struct shmq_item item;
    struct shmq_queue_session *queue_session;
    uint64_t receipt; /* of the space                                                */
    unsigned char *next; /* of the next byte; NULL: nowhere                              */
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
        *durable_replies; /* a ring: answers that wait for the disk          */
    uint32_t durable_reply_first, durable_reply_count, durable_reply_room;
    uint64_t tickets; /* given so far                                    */
    struct shmq_session *promising_next, *promising_before; /* the engine's, if it has any */
    int64_t began_at;
    int64_t heard_at; /* when it began, or its last whole frame came     */
    int64_t moved_at; /* when some of what is to go went, or there was none */
    int64_t partial_at; /* when the frame began that is not whole; 0: none */
    uint64_t unsettled_bytes;
    uint32_t unsettled;
    uint32_t waiter_count;
    uint32_t delayed; /* requests that policy has still to answer        */
    bool authorised; /* a HELLO was OK, or none is asked for            */
    bool held; /* frames wait: there is much to send or to confirm, or
                                       * it is parked                                    */
    bool parked; /* a request of it waits, and all behind that      */
    bool unread; /* the frame that is carried out is put back       */
    const unsigned char *unread_at; /* from here on; NULL: from its beginning          */
    struct shmq_attached_queue *parked_at; /* for that one's lock; NULL: for something else   */
    uint32_t settled; /* receipts of the parked request that are done    */
    unsigned char *refused; /* of these, as they came                          */
    uint32_t refused_bytes;
    bool carrying; /* frames of it are carried out                    */
    bool promising; /* is in the engine's list of those                 */
    bool fin; /* the peer sends no more                          */
    bool finished; /* nothing more is carried out                     */
    bool broken; /* no memory was left for it                       */
    bool blocked; /* has waiters that are passed over                */
    bool output_pending; /* is in the engine's list of those                 */
    struct shmq_session *next_pending;
};

#define SHMQ_BUCKETS 256

struct shmq_engine {
    const struct shmq_hooks *hooks;
    void *data;
    struct shmq_limits limits;
    struct shmq_session *sessions;
    struct shmq_session *output_pending;
    struct shmq_session *promising; /* those with answers that wait for the disk       */
    struct shmq_session *current; /* the one that is being fed                       */
    struct shmq_attached_queue *touched;
    struct shmq_attached_queue *pending; /* those that a tick looks at again soon           */
    struct shmq_attached_queue *buckets[SHMQ_BUCKETS];
    unsigned char *scratch;
    uint32_t session_count;
    uint32_t held_lease_count;
    int64_t expire_at; /* the earliest end of a CONSUME's wait            */
    int64_t review_at, patrol_at; /* when shmq_engine_tick does so again              */
    int64_t retry_at; /* the same for what is pending                    */
    int64_t search_from, search_spent; /* a span of time, and what searches took of it   */
    bool draining;
};

#endif
