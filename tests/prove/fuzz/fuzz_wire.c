/* libFuzzer on the engine: `make fuzz`. The input is a script, see wire_script.h; the mutator
 * knows its steps, so that what it makes is mostly requests, not noise. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/frame.h"
#include "harness.h"
#include "wire_script.h"

#define MOST_STEP 300

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned int seed);

/* The checks of the harness, for whom harness.c has its own ends. */
void test_failed(const char *file, int line, const char *what)
{
    fprintf(stderr, "%s:%d: failed: %s\n", file, line, what);
    abort();
}

void test_differs(const char *file, int line, const char *what, int64_t got, int64_t wanted)
{
    fprintf(stderr, "%s:%d: failed: %s: %" PRId64 ", not %" PRId64 "\n", file, line, what, got,
            wanted);
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    script_run(data, size);
    return 0;
}

/* ---- chance ---- */

static uint32_t state;

static uint32_t below(uint32_t limit)
{
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state % limit;
}

static uint8_t any(void) { return (uint8_t)below(256); }

/* Mostly a small number, which means something more often. */
static uint8_t some(void) { return below(4) ? (uint8_t)below(6) : any(); }

/* ---- steps ---- */

static uint8_t *add_name(uint8_t *at)
{
    static const char *const names[] = {"a", "a", "b", "c", "absent", "", "bad name"};
    const char *name = names[below(7)];
    uint16_t bytes = (uint16_t)strlen(name);

    at = shmq_store16(at, bytes);
    memcpy(at, name, bytes);
    return at + bytes;
}

static uint32_t a_number(void)
{
    static const uint32_t numbers[] = {0, 1, 1, 2, 3, 10, 100, 1000, 1u << 31, UINT32_MAX};

    return numbers[below(10)];
}

/* A message of a batch. */
static uint8_t *add_message(uint8_t *at)
{
    static const char properties[] = "\x82\xa3pri\x01\xa6"
                                     "dedupe\xa1"
                                     "7";
    uint8_t body = (uint8_t)below(12);
    bool with = below(3) == 0;

    *at++ = (uint8_t)((with ? 1 : 0) | (below(12) ? 0 : any()));
    if (with) {
        at = shmq_store32(at, sizeof properties - 1);
        memcpy(at, properties, sizeof properties - 1);
        at += sizeof properties - 1;
    }
    at = shmq_store32(at, below(12) ? body : a_number());
    memset(at, 'x', body);
    return at + body;
}

static uint8_t *add_batch(uint8_t *at)
{
    uint32_t count = below(5);

    *at++ = below(8) ? 0 : any();
    at = shmq_store32(at, below(8) ? count : a_number());
    for (uint32_t i = 0; i < count; i++)
        at = add_message(at);
    return at;
}

static uint8_t *add_payload(uint8_t *at, uint8_t type)
{
    uint8_t *begin = at;

    if (type != SHMQ_T_PING && type != SHMQ_T_LIST && type != SHMQ_T_EXCHANGES &&
        type != SHMQ_T_HELLO && type != SHMQ_T_UNSUBSCRIBE)
        at = add_name(at);
    switch (type) {
    case SHMQ_T_HELLO: memcpy(at, "\x81\xa5token\xa1t", 9); return at + 9;
    case SHMQ_T_PRODUCE_BATCH: return add_batch(at);
    case SHMQ_T_CONSUME:
    case SHMQ_T_SUBSCRIBE:
        at = shmq_store32(at, a_number());
        if (type == SHMQ_T_CONSUME)
            at = shmq_store32(at, a_number());
        *at++ = below(6) ? (uint8_t)below(2) : any();
        return at;
    case SHMQ_T_PRODUCE:
        *at++ = below(4) ? 0 : any();
        memset(at, any(), 8);
        return at + below(9);
    case SHMQ_T_CREATE: *at = 0x80; return at + below(2);
    case SHMQ_T_COLUMNS:
        at = shmq_store32(at, a_number());
        at = shmq_store32(at, a_number());
        at = shmq_store32(at, a_number());
        break;
    case SHMQ_T_LEASE_RUN:
        at = shmq_store32(at, a_number());
        at = shmq_store64(at, a_number());
        at = shmq_store32(at, a_number());
        break;
    case SHMQ_T_LEASE_AGAIN:
        at = shmq_store32(at, a_number());
        at = shmq_store64(at, below(8));
        break;
    case SHMQ_T_READ_RUN:
        at = shmq_store32(at, a_number());
        at = shmq_store64(at, below(8));
        at = shmq_store32(at, below(8));
        break;
    case SHMQ_T_REDRIVE:
        at = shmq_store32(at, a_number());
        memset(at, any(), 8);
        return at + below(9);
    case SHMQ_T_PEEK:
    case SHMQ_T_NACK:
    case SHMQ_T_EXTEND: at = shmq_store32(at, a_number()); break;
    default: break;
    }
    return below(6) || at == begin ? at : at - 1;
}

static size_t make_frame(uint8_t *step)
{
    static const uint8_t types[] = {
        SHMQ_T_HELLO,         SHMQ_T_PING,          SHMQ_T_CREATE,  SHMQ_T_DELETE,
        SHMQ_T_PURGE,         SHMQ_T_LIST,          SHMQ_T_STATS,   SHMQ_T_PRODUCE,
        SHMQ_T_PRODUCE_BATCH, SHMQ_T_CONSUME,       SHMQ_T_CONSUME, SHMQ_T_SUBSCRIBE,
        SHMQ_T_SUBSCRIBE,     SHMQ_T_ACK,           SHMQ_T_EXTEND,  SHMQ_T_PEEK,
        SHMQ_T_UNSUBSCRIBE,   SHMQ_T_PRODUCE_BATCH, SHMQ_T_COLUMNS, SHMQ_T_LEASE_RUN,
        SHMQ_T_LEASE_AGAIN,   SHMQ_T_READ_RUN};
    uint8_t type = below(20) ? types[below(sizeof types)] : any();
    uint8_t *end;

    step[1] = type;
    step[2] = below(2) ? 0 : any();
    end = add_payload(step + 4, type);
    step[3] = (uint8_t)(end - step - 4);
    return (size_t)(end - step);
}

static size_t make_step(uint8_t *step)
{
    static const uint8_t usual[] = {STEP_FRAME,   STEP_FRAME,  STEP_FRAME,  STEP_PRODUCE,
                                    STEP_PRODUCE, STEP_SETTLE, STEP_SETTLE, STEP_TIME};
    uint8_t kind = below(3) ? usual[below(sizeof usual)] : (uint8_t)below(STEPS);

    step[0] = (uint8_t)(below(4) << 6 | kind);
    if (kind == STEP_FRAME)
        return make_frame(step);
    for (int i = 1; i < 6; i++)
        step[i] = some();
    if (kind == STEP_PRODUCE)
        step[4] = any();
    if (kind == STEP_BYTES) {
        step[1] = 20;
        (void)shmq_frame_write(step + 2, any(), 0, 9, a_number());
        return 22;
    }
    if (kind == STEP_SETTLE) {
        step[5] = (uint8_t)below(9);
        for (int i = 0; i < step[5]; i++)
            step[6 + i] = some();
    }
    return script_step(step, MOST_STEP);
}

/* ---- scripts ---- */

/* Where one of the steps begins, and its length. */
static size_t choose_step(const uint8_t *data, size_t size, size_t *length)
{
    size_t at = 1, chosen = 1;

    *length = 0;
    for (uint32_t seen = 1; at < size; seen++) {
        size_t step = script_step(data + at, size - at);

        if (!below(seen)) {
            chosen = at;
            *length = step;
        }
        at += step;
    }
    return chosen;
}

/* Puts `step` in the place of `old` bytes at `at`. */
static size_t replace(uint8_t *data, size_t size, size_t most, size_t at, size_t old,
                      const uint8_t *step, size_t length)
{
    if (size - old + length > most)
        return size;
    memmove(data + at + length, data + at + old, size - at - old);
    if (length)
        memcpy(data + at, step, length);
    return size - old + length;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned int seed)
{
    uint8_t step[MOST_STEP];
    size_t at, length;

    state = seed | 1;
    if (size < 2 || !below(3)) {
        if (!size)
            data[size++] = 0;
        size = LLVMFuzzerMutate(data, size, most);
    }
    for (uint32_t times = 1 + below(4); times && size; times--) {
        at = choose_step(data, size, &length);
        switch (below(4)) {
        case 0: size = replace(data, size, most, at, length, NULL, 0); break;
        case 1:
            if (length && length <= sizeof step) {
                memcpy(step, data + at, length);
                at = choose_step(data, size, &(size_t){0});
                size = replace(data, size, most, at, 0, step, length);
            }
            break;
        case 2: size = replace(data, size, most, at, length, step, make_step(step)); break;
        default: size = replace(data, size, most, at, 0, step, make_step(step)); break;
        }
    }
    return size;
}
