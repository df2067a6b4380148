/* Text protocols whose lines end with CR LF. */
#ifndef BENCH_TEXT_H
#define BENCH_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "load.h"

/* The bytes up to and including the first CR LF; 0 if there is none. */
size_t text_line(const uint8_t *data, size_t length);
/* The number at the beginning of the data; its digits end before `*after`. */
int64_t text_number(const uint8_t *data, const uint8_t **after);
bool text_begins(const uint8_t *data, size_t length, const char *what);
/* Append text, formatted as by printf. */
void text_say(struct line *, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Send the text, wait for a line, and end the process unless it begins with `expected`. */
void text_talk(struct line *, const char *expected, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* End the process: this input was not expected. */
_Noreturn void text_wrong(const uint8_t *data, size_t length);

/* A ring of requests that differ only in the numbers of their bodies: `count` bodies, with
 * `before` in front of each and CR LF behind, after `head`. Made at first, then asked for. */
struct mould {
    size_t head, before, frame;
    unsigned count;
};

void mould_make(struct line *, struct mould *, const char *head, const char *before,
                unsigned count);
void mould_ask(struct line *, const struct mould *);

/* A RESP value: its length with everything in it, or 0 if it is incomplete. */
size_t resp_length(const uint8_t *data, size_t length);

#endif
