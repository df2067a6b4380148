/* A load generator for message brokers: one thread drives every connection.
 *
 * A work is one kind of load in one broker's protocol. It asks (appends requests to a
 * line's output, up to the window) and hears (takes complete answers from a line's input). A
 * crew is the set of lines that do one work together. A consuming crew is measured after a
 * producing crew has filled the queue; a producing crew is measured before a consuming crew
 * empties it. So in every run all messages that are sent are received.
 *
 * Every answer and every body is checked: the first error ends the process with 1 and a
 * message. */
#ifndef BENCH_LOAD_H
#define BENCH_LOAD_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "latency.h"
#include "ledger.h"

/* The plan from the command line. */
struct plan {
    const char *host;
    int port;
    const char *queue;
    unsigned connections;
    unsigned window;   /* messages under way on a connection */
    unsigned batch;    /* messages of a request; receipts of an acknowledgement */
    size_t size;       /* bytes of a body, 8 at least */
    uint64_t messages; /* of a round */
    unsigned rounds;   /* that are timed, after one that is not */
    int patience;      /* seconds without any answer after which one was lost */
    bool files;        /* what the broker is asked to keep is kept in files, and answered then */
};

struct crew;

/* A connection. Its output is a ring of `room` bytes; positions only increase. */
struct line {
    struct crew *crew;
    int fd;
    unsigned events;   /* what epoll watches it for */
    uint8_t *out;
    size_t room;
    uint64_t head, tail; /* sent up to here; written up to here */
    uint8_t *in;
    size_t in_room, in_head, in_tail;
    uint64_t asked, answered; /* requests of this line */
    uint64_t free;     /* messages that the window has room for */
    uint64_t last;     /* the last sequence number that it was told */
    bool dry;          /* the queue was found empty: nothing more is asked for */
    int64_t *stamps;   /* when each request under way was asked, by its number */
    uint64_t stamp_mask;
    void *own;         /* the work's */
};

struct work {
    const char *name;
    const char *partner; /* who fills before, or empties after; NULL: nobody */
    bool consumes;       /* what the partner has put; else it puts */
    /* Prepare the broker once, on a separate line, before any line of the run opens. */
    void (*ready)(struct line *);
    /* Clean up the broker. */
    void (*leave)(struct line *);
    /* The line is connected and blocking: greet the broker, allocate the output. */
    void (*open)(struct line *);
    /* A round begins, or has ended; requests made here do not count as messages. */
    void (*begin)(struct line *);
    void (*end)(struct line *);
    /* Append the requests that the window has room for. */
    void (*ask)(struct line *);
    /* Take one complete answer: its length, or 0 if it is incomplete. */
    size_t (*hear)(struct line *, const uint8_t *, size_t);
};

/* The lines that do one work. The numbers of messages continue over the rounds. */
struct crew {
    const struct work *work;
    const struct plan *plan;
    unsigned window, batch, count;
    struct line *lines;
    uint64_t base;       /* number of the first message of the round */
    uint64_t next;       /* messages of the round that were asked for */
    uint64_t done;       /* messages of the round that were answered */
    int64_t clock;       /* read once for each handful of answers */
    struct ledger ledger;
    struct latency latency;
};

/* crew.c */
void crew_open(struct crew *, const struct work *, const struct plan *, unsigned count,
               unsigned window, unsigned batch);
/* Do a round of that many messages; returns its duration in ns. */
int64_t crew_round(struct crew *, uint64_t messages);
void crew_close(struct crew *);

/* line.c */
int64_t now(void);
_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
void *memory(size_t bytes);
void line_connect(struct line *, const struct plan *);
void line_room(struct line *, size_t bytes);
void line_close(struct line *);
void line_say(struct line *, const void *bytes, size_t length);
/* Send what the socket takes; true if all of it was sent. */
bool line_send(struct line *);
/* Read the available input and hear it; false if there was none. */
bool line_receive(struct line *);
/* The place of the next `length` bytes of output, which do not wrap: all frames are equal. */
uint8_t *line_place(struct line *, size_t length);
/* On a blocking socket: send all; read that much; send, and read up to a CR LF. */
void line_write_all(struct line *, const void *bytes, size_t length);
void line_read_all(struct line *, void *bytes, size_t length);
size_t line_converse(struct line *, const void *said, size_t length, char *answer, size_t room);
/* Count an appended request, or an answered one; returns its number, the same in both. */
uint64_t line_ask(struct line *);
uint64_t line_answer(struct line *);

/* body.c: a number, then a filler that is the same in all bodies. */
void body_make(uint8_t *body, size_t size, uint64_t number);
void body_number(uint8_t *body, uint64_t number);
/* Check a received body: it is whole, and its number is new and belongs to this round. */
void body_check(struct crew *, const uint8_t *body, size_t size);

#endif
