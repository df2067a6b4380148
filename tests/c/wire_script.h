/* Any bytes, read as a script of what connections, time and others do to an engine: so that
 * whoever invents bytes gets deep into it. */
#pragma once

#include <stddef.h>

/* Carries the script out, and fails if an answer is not a server's, a request that was refused
 * has changed a queue, or something is left behind. */
void script_run(const unsigned char *script, size_t size);

/* The length of the step that begins at `script`, at most `size`: to cut scripts into steps. */
size_t script_step(const unsigned char *script, size_t size);

/* A step's first byte: the session in the high bits, and what is done. */
enum script_step {
    STEP_BYTES,    /* u8 n, n bytes: sent as they are                                       */
    STEP_FRAME,    /* u8 type, u8 how, u8 n, n bytes of payload                             */
    STEP_PRODUCE,  /* u8 queue, u8 how, u8 properties, u8 size                              */
    STEP_SETTLE,   /* u8 kind, u8 queue, u8 how, u8 ms, u8 n, n receipts that were given    */
    STEP_LEAVE,    /* u8 which subscription is ended                                        */
    STEP_TIME,     /* u8 how much passes                                                    */
    STEP_STALL,    /* the client stops reading, or goes on                                  */
    STEP_READ,     /* u8 n: a client that has stopped takes so much                         */
    STEP_FIN,
    STEP_CLOSE,    /* and the session's next step opens another connection                  */
    STEP_PUT,      /* u8 queue, u8 size: another process puts                               */
    STEP_GET,      /* u8 queue, u8 what: it leases, and settles                             */
    STEP_STEAL,    /* u8 queue, u8 receipt, u8 what: it settles what a client has           */
    STEP_STARVE,   /* u8 queue: the machine's memory is full, or has room again             */
    STEP_BREAK,    /* u8 queue, u8 what: it is deleted, or found damaged                    */
    STEP_DRAIN,    /* u8: the server ends, if it is 0x77                                    */
    STEPS
};

/* How a frame is sent: STEP_FRAME, STEP_PRODUCE, STEP_SETTLE. */
#define HOW_SILENT 0x01 /* message id 0                                                     */
#define HOW_LATER 0x02  /* together with what is sent next                                  */
#define HOW_SHORT 0x04  /* without its last byte                                            */
#define HOW_CUT 0xF0    /* in pieces                                                        */
