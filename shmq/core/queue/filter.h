/* A filter: selects messages by what is known about them without their bodies.
 *
 * shmq/model/expression/compiler.py compiles an expression of the language of shmq/model/expression/parse.py to
 * a small program in postfix order, as bytes, with numbers in network byte order:
 *
 * NOT AND OR   take one or two truth values from the stack, and push one
 * TEST         u8 field, [HEADER: u16 n + its name], u8 relation, constant: pushes one
 *
 * constant     u8 kind: NIL | BOOL u8 | INT i64 | REAL f64 | TEXT u32 n + bytes (UTF-8)
 *
 * A value of another kind than the constant is not compared, and makes the test false: true is not
 * 1, and a text is not a number. NIL, which is used with EQUAL only, is an absent field.
 *
 * A program is checked once as a whole before it is run: its end, every length, and that the stack
 * neither underflows nor overflows. The properties that it runs on are checked as they are read:
 * if they are not one msgpack map, the message has none. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "queue/message.h"

#define SHMQ_FILTER_DEPTH 128      /* of the stack                                       */
#define SHMQ_FILTER_BYTES (1u << 20) /* of a program                                     */

enum shmq_filter_op {
    SHMQ_OP_NOT = 1,
    SHMQ_OP_AND = 2,
    SHMQ_OP_OR = 3,
    SHMQ_OP_TEST = 4,
};

enum shmq_filter_field {
    SHMQ_FIELD_REASON = 1,      /* of the property `dead`                                */
    SHMQ_FIELD_QUEUE = 2,
    SHMQ_FIELD_DELIVERIES = 3,
    SHMQ_FIELD_AT = 4,          /* s since 1970                                          */
    SHMQ_FIELD_AGE = 5,         /* seconds since the put                                 */
    SHMQ_FIELD_GROUP = 6,
    SHMQ_FIELD_CORRELATION = 7,
    SHMQ_FIELD_CODEC = 8,
    SHMQ_FIELD_PRIORITY = 9,
    SHMQ_FIELD_SEQUENCE = 10,
    SHMQ_FIELD_SIZE = 11,
    SHMQ_FIELD_HEADER = 12,
    SHMQ_FIELD_ERROR = 13,      /* of the last delivery, or the one that made it a dead letter */
    SHMQ_FIELDS
};

enum shmq_filter_relation {
    SHMQ_IS_EQUAL = 1,
    SHMQ_IS_LESS = 2,
    SHMQ_IS_AT_MOST = 3,
    SHMQ_IS_MORE = 4,
    SHMQ_IS_AT_LEAST = 5,
    SHMQ_IS_LIKE = 6, /* TEXT: `%` matches any text                                       */
    SHMQ_RELATIONS
};

enum shmq_filter_constant {
    SHMQ_CONST_NIL = 0,
    SHMQ_CONST_BOOL = 1,
    SHMQ_CONST_INT = 2,
    SHMQ_CONST_REAL = 3,
    SHMQ_CONST_TEXT = 4,
    SHMQ_CONSTS
};

struct shmq_filter {
    const unsigned char *code;
    uint32_t bytes;
};

/* The facts about a message that a filter tests. */
struct shmq_facts {
    const unsigned char *meta; /* the properties: one msgpack map, or no bytes            */
    uint32_t meta_bytes;
    uint32_t size;             /* of the body                                            */
    uint64_t seq;
    uint8_t priority;
    uint8_t codec;             /* its number; SHMQ_CODEC_OTHER: the name is in the properties */
    int64_t wall;              /* now, ns since 1970                                     */
};

/* NULL if the program can be run, else what is wrong with it. */
const char *shmq_filter_fault(const struct shmq_filter *filter);

/* Whether the message matches. The program must have been checked. */
bool shmq_filter_matches(const struct shmq_filter *filter, const struct shmq_facts *facts);

/* ---- select.c ---- */

/* Selection: leasing the first message, in the queue's order, that matches a filter.
 *
 * Messages that do not match stay in place. Only messages that a get could lease at once are looked
 * at: of a group only the front, so a front that does not match holds back its group. The lock is
 * held for a bounded number of steps; in between it is free for others, and then the search
 * continues where it was. It sees every message that is in the order from its beginning to its end;
 * it may see some of those that arrive meanwhile, and waiting parties are woken for them
 * (wait.h). */

/* A search. Private memory. */
struct shmq_selection {
    struct shmq_filter filter;
    int64_t wall;        /* ns since 1970 at the beginning                                */
    uint64_t recoveries; /* of the queue at that time: a rebuild moves everything         */
    bool more;           /* after SHMQ_EMPTY: the search is not over, call again          */

    /* -- the order's list of each priority: where to continue -- */
    int32_t priority;    /* -1: all were searched                                         */
    uint32_t at;         /* the next slot, if it still holds; SHMQ_NIL: the head            */
    uint64_t seq;        /*   this message there                                          */
    uint64_t seen;       /* the messages of this priority looked at so far                */

    /* -- the order's heap: its best match -- */
    bool heap_seen;      /* all of it was searched                                        */
    uint32_t heap_at;    /* where to continue in a large heap                             */
    uint32_t best;       /* SHMQ_NIL: none so far                                         */
    uint64_t best_key;

    uint32_t cost;       /* of one run of the filter                                      */
    uint32_t looks;      /* looks left while the lock is held                             */
    uint64_t looked;     /* all looks so far                                              */
};

/* Begins a search. The filter must have been checked. */
void shmq_select_begin(const struct shmq_queue *q, struct shmq_selection *selection,
                       const struct shmq_filter *filter);

/* Leases the next match: SHMQ_OK; call again for one more. SHMQ_EMPTY: there is none, unless `more`
 * is set. Holds the get-side lock. */
int shmq_select(struct shmq_queue *q, struct shmq_selection *selection, int64_t now, bool handed,
                struct shmq_view *view);

/* Allows a new portion of steps after the lock was released. */
void shmq_select_again(struct shmq_selection *selection);
