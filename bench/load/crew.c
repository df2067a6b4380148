#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "load.h"

/* The most connections that are served between two waits. */
#define EVENTS 64
/* Bytes of a connection's input, in addition to four bodies. */
#define LEAST_INPUT (256u * 1024)

static uint64_t power_of_two(uint64_t least)
{
    uint64_t power = 1;

    while (power < least)
        power *= 2;
    return power;
}

static void open_line(struct crew *crew, struct line *line)
{
    uint64_t under_way = power_of_two(4ull * crew->window + 64);

    line->crew = crew;
    line->in_room = 4 * crew->plan->size + LEAST_INPUT;
    line->in = memory(line->in_room);
    line->stamps = memory(under_way * sizeof(*line->stamps));
    line->stamp_mask = under_way - 1;
    line->free = crew->window;
    line_connect(line, crew->plan);
    crew->work->open(line);
}

void crew_open(struct crew *crew, const struct work *work, const struct plan *plan, unsigned count,
               unsigned window, unsigned batch)
{
    *crew = (struct crew){.work = work, .plan = plan, .count = count};
    crew->window = window;
    crew->batch = batch;
    crew->lines = memory(count * sizeof(*crew->lines));
    for (unsigned n = 0; n < count; n++)
        open_line(crew, &crew->lines[n]);
}

void crew_close(struct crew *crew)
{
    for (unsigned n = 0; n < crew->count; n++)
        line_close(&crew->lines[n]);
    free(crew->lines);
    free(crew->ledger.bits);
    free(crew->ledger.sequences);
}

/* Send the output, and watch for room only while some is left. */
static void push(int poll, struct line *line)
{
    unsigned wanted = line_send(line) ? EPOLLIN : EPOLLIN | EPOLLOUT;
    struct epoll_event event = {.events = wanted, .data.ptr = line};

    if (wanted != line->events && epoll_ctl(poll, EPOLL_CTL_MOD, line->fd, &event))
        fail("epoll_ctl: %s", strerror(errno));
    line->events = wanted;
}

static int watch(struct crew *crew)
{
    int poll = epoll_create1(EPOLL_CLOEXEC);

    for (unsigned n = 0; n < crew->count; n++) {
        struct line *line = &crew->lines[n];
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = line};

        line->events = EPOLLIN;
        if (epoll_ctl(poll, EPOLL_CTL_ADD, line->fd, &event))
            fail("epoll_ctl: %s", strerror(errno));
    }
    return poll;
}

/* Wait for answers and take them; with `asking` append new requests. */
static void turn(struct crew *crew, int poll, bool asking)
{
    struct epoll_event events[EVENTS];
    int patience = crew->plan->patience;
    int count = epoll_wait(poll, events, EVENTS, patience * 1000);

    if (count < 0 && errno != EINTR)
        fail("epoll_wait: %s", strerror(errno));
    if (!count)
        fail("no answer came within %d s: %llu of %llu messages are done", patience,
             (unsigned long long)crew->done, (unsigned long long)crew->ledger.most);
    for (int n = 0; n < count; n++) {
        struct line *line = events[n].data.ptr;

        if (events[n].events & ~(unsigned)EPOLLOUT)
            line_receive(line);
        if (asking)
            crew->work->ask(line);
        push(poll, line);
    }
}

/* Whether every request of every line is answered and every byte is sent. */
static bool quiet(const struct crew *crew)
{
    for (unsigned n = 0; n < crew->count; n++) {
        const struct line *line = &crew->lines[n];

        if (line->asked != line->answered || line->head != line->tail)
            return false;
    }
    return true;
}

static void each(struct crew *crew, int poll, void (*act)(struct line *))
{
    for (unsigned n = 0; act && n < crew->count; n++) {
        act(&crew->lines[n]);
        push(poll, &crew->lines[n]);
    }
}

int64_t crew_round(struct crew *crew, uint64_t messages)
{
    int poll = watch(crew);
    int64_t begun, ended;

    crew->next = crew->done = 0;
    ledger_begin(&crew->ledger, messages);
    for (unsigned n = 0; n < crew->count; n++)
        crew->lines[n].dry = false;
    begun = crew->clock = now();
    each(crew, poll, crew->work->begin);
    each(crew, poll, crew->work->ask);
    while (crew->done < messages)
        turn(crew, poll, true);
    ended = now();
    while (!quiet(crew))
        turn(crew, poll, false);
    each(crew, poll, crew->work->end);
    while (!quiet(crew))
        turn(crew, poll, false);
    if (crew->done != messages)
        fail("%llu messages are done where %llu were asked for", (unsigned long long)crew->done,
             (unsigned long long)messages);
    ledger_end(&crew->ledger);
    crew->base += messages;
    close(poll);
    return ended - begun;
}
