/* What a session answers, read as a client would: every byte must be of a frame that a server
 * may send. Where it is known what was asked, every answer must be due. */
#pragma once

#include "protocol/frame.h"
#include "harness.h"

#define MOST_DUE 512
#define MOST_PENDING (1u << 20)

/* A request that has an answer to come. */
struct due {
    uint32_t id;
    uint32_t target; /* of an UNSUBSCRIBE                                                  */
    uint8_t type;
    bool may_wait; /* a CONSUME with a wait: it may be answered out of turn               */
    bool series;   /* DELIVERs of it have come, and more are to come                       */
};

struct answers {
    unsigned char *bytes; /* MOST_PENDING: what has come, and is not a whole frame yet         */
    size_t used;
    bool fatal;    /* the last frame has come                                              */
    bool unknown;  /* bytes were sent that are no known requests: answers are only read     */
    uint32_t count; /* frames                                                              */
    uint16_t last_status;
    uint32_t last_bytes;
    unsigned char last[16]; /* the beginning of its payload                                */
    struct due due[MOST_DUE]; /* in the order of the requests                              */
    uint32_t due_count;
    uint32_t subscriptions[MOST_DUE];
    uint32_t subscription_count;
};

/* Called with the receipt of each message that is delivered. */
typedef void answers_receipt(uint64_t receipt);

/* Nothing has been sent yet. */
void answers_begin(struct answers *answers, unsigned char bytes[MOST_PENDING]);

/* A request was sent that is to be answered. */
void answers_expect(struct answers *answers, const struct due *due);

/* So much came. */
void answers_read(struct answers *answers, const void *bytes, size_t size,
                  answers_receipt *receipt);

/* All has come that will come without another request, or the passing of time: fails if a
 * request that does not wait was not answered. */
void answers_check_settled(const struct answers *answers);
