#include "idle.h"

#include <stdio.h>
#include <unistd.h>

#include "frame.h"

static void ping_once(struct line *line, uint32_t number)
{
    uint8_t said[SHMQ_FRAME_HEADER + 4], heard[SHMQ_FRAME_HEADER + 4];
    struct frame frame;

    shmq_store32(frame_begin(said, SHMQ_T_PING, number, 4), number);
    line_write_all(line, said, sizeof(said));
    line_read_all(line, heard, sizeof(heard));
    if (!frame_read(&frame, heard, sizeof(heard)))
        fail("the answer to a PING is longer than the PING");
    frame_expect(&frame, number, SHMQ_S_OK);
    if (shmq_load32(frame.payload) != number)
        fail("the answer to a PING has other bytes than the PING");
}

void idle(const struct plan *plan)
{
    struct line *lines = memory(plan->connections * sizeof(*lines));
    char byte;

    for (unsigned n = 0; n < plan->connections; n++) {
        line_connect(&lines[n], plan);
        ping_once(&lines[n], n + 1);
    }
    printf("ready\n");
    fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0)
        continue;
    for (unsigned n = 0; n < plan->connections; n++) {
        ping_once(&lines[n], n + 1);
        line_close(&lines[n]);
    }
    printf("{\"connections\": %u}\n", plan->connections);
}
