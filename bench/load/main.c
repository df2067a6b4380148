/* load WORK -p PORT [-a ADDRESS] [-q QUEUE] [-c CONNECTIONS] [-w WINDOW] [-b BATCH]
 *      [-s SIZE] [-n MESSAGES] [-r ROUNDS] [-t PATIENCE] [-f 0|1]
 *
 * Does the work ROUNDS times, with MESSAGES each time, after a round that is not timed, and
 * prints the times as JSON. An answer that does not come within PATIENCE seconds is lost.
 * With -f 1 a stream of NATS is in files, a queue of shmq has a journal, and a put is answered
 * once it is on disk.
 * `load idle` holds CONNECTIONS open until its input ends. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "idle.h"
#include "works.h"

/* The partner's messages in flight, on one connection, and the most bytes of its requests. */
#define PARTNER_WINDOW 256u
#define PARTNER_BATCH 64u
#define PARTNER_BYTES (1u << 20)

static const struct work *const works[] = {
    &ping,       &echo,       &produce,        &batch,              &consume,      &subscribe,
    &redis_push, &redis_move, &redis_add,      &redis_group,        &beanstalkd_put,
    &beanstalkd_reserve,      &nats_publish,   &nats_fetch,
};

static const struct work *work_named(const char *name)
{
    for (size_t n = 0; n < sizeof(works) / sizeof(works[0]); n++)
        if (!strcmp(works[n]->name, name))
            return works[n];
    fail("there is no work called %s", name);
}

static unsigned long counted(const char *text, unsigned long least)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);

    if (!*text || *end || value < least)
        fail("%s is not a number of at least %lu", text, least);
    return value;
}

static struct plan planned(int argc, char **argv)
{
    struct plan plan = {.host = "127.0.0.1", .queue = "load", .connections = 1, .window = 64,
                        .batch = 1, .size = 64, .messages = 10000, .rounds = 1,
                        .patience = 30};
    int option;

    while ((option = getopt(argc, argv, "p:a:q:c:w:b:s:n:r:t:f:")) != -1) {
        switch (option) {
        case 'p': plan.port = (int)counted(optarg, 1); break;
        case 'a': plan.host = optarg; break;
        case 'q': plan.queue = optarg; break;
        case 'c': plan.connections = (unsigned)counted(optarg, 1); break;
        case 'w': plan.window = (unsigned)counted(optarg, 1); break;
        case 'b': plan.batch = (unsigned)counted(optarg, 1); break;
        case 's': plan.size = counted(optarg, 8); break;
        case 'n': plan.messages = counted(optarg, 1); break;
        case 'r': plan.rounds = (unsigned)counted(optarg, 1); break;
        case 't': plan.patience = (int)counted(optarg, 1); break;
        case 'f': plan.files = counted(optarg, 0) > 0; break;
        default: exit(2);
        }
    }
    if (!plan.port || strlen(plan.queue) > 100)
        fail("a port is wanted, -p PORT, and a queue's name of at most 100 bytes");
    plan.messages = (plan.messages + plan.batch - 1) / plan.batch * plan.batch;
    return plan;
}

/* The largest batch, a power of two, that divides a round into whole requests. */
static unsigned partner_batch(const struct plan *plan)
{
    unsigned most = PARTNER_BATCH;

    while (most > 1 && (plan->messages % most || most * plan->size > PARTNER_BYTES))
        most /= 2;
    return most;
}

static void show(const struct plan *plan, const struct crew *crew, double seconds)
{
    const struct latency *latency = &crew->latency;
    double messages = (double)plan->messages * plan->rounds;

    printf("{\"work\": \"%s\", \"connections\": %u, \"window\": %u, \"batch\": %u, "
           "\"size\": %zu, \"messages\": %.0f, \"seconds\": %.9f, \"rate\": %.3f, "
           "\"p50\": %.3f, \"p90\": %.3f, \"p99\": %.3f, \"most\": %.3f}\n",
           crew->work->name, crew->count, crew->window, crew->batch, plan->size, messages,
           seconds, messages / seconds, latency_at(latency, 0.5) / 1e3,
           latency_at(latency, 0.9) / 1e3, latency_at(latency, 0.99) / 1e3,
           latency_at(latency, 1) / 1e3);
}

/* Run the rounds; returns the time of the work in all but the first. */
static double rounds(const struct plan *plan, struct crew *crew, struct crew *partner)
{
    bool consumes = crew->work->consumes;
    int64_t taken = 0, round;

    for (unsigned n = 0; n <= plan->rounds; n++) {
        if (partner && consumes)
            crew_round(partner, plan->messages);
        round = crew_round(crew, plan->messages);
        if (partner && !consumes)
            crew_round(partner, plan->messages);
        if (n)
            taken += round;
        else
            memset(&crew->latency, 0, sizeof(crew->latency));
    }
    return (double)taken / 1e9;
}

static void run(const struct work *work, const struct plan *plan)
{
    struct crew desk = {.work = work, .plan = plan}, crew, partner;
    struct line line = {.crew = &desk};
    unsigned gathered = partner_batch(plan);
    double seconds;

    line_connect(&line, plan);
    if (work->ready)
        work->ready(&line);
    crew_open(&crew, work, plan, plan->connections, plan->window, plan->batch);
    if (work->partner)
        crew_open(&partner, work_named(work->partner), plan, 1, PARTNER_WINDOW, gathered);
    seconds = rounds(plan, &crew, work->partner ? &partner : NULL);
    show(plan, &crew, seconds);
    if (work->partner)
        crew_close(&partner);
    crew_close(&crew);
    if (work->leave)
        work->leave(&line);
    line_close(&line);
}

int main(int argc, char **argv)
{
    struct plan plan;

    if (argc < 2)
        fail("usage: load WORK -p PORT ...");
    plan = planned(argc - 1, argv + 1);
    if (!strcmp(argv[1], "idle"))
        idle(&plan);
    else
        run(work_named(argv[1]), &plan);
    return 0;
}
