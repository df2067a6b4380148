/* A partition that is appended to and read at once: readers see whole records, in order. */
#include "log_fixture.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#define APPENDERS 2
#define READERS 3
#define RECORDS 3000u /* of each appender */

static struct shmq_log *shared;
static _Atomic bool over;
static _Atomic uint64_t seen;

static void *append_many(void *log)
{
    uint64_t first;

    for (uint32_t n = 0; n < RECORDS; n += 3)
        CHECK_EQ(append_piece(log, 3, n % 100 ? 40 : 6000, &first), SHMQ_OK);
    return NULL;
}

static void *read_along(void *log)
{
    uint64_t offset = 0;

    while (!atomic_load(&over) || offset < bounds_of(log).latest) {
        uint64_t got = read_some(log, offset, 50);

        if (!got && bounds_of(log).earliest > offset)
            offset = bounds_of(log).earliest;
        offset += got;
        atomic_fetch_add(&seen, got);
    }
    return NULL;
}

TEST("readers that are overtaken all the time never see torn bytes")
{
    pthread_t appenders[APPENDERS], readers[READERS];

    shared = NEW_LOG();
    atomic_store(&over, false);
    for (int i = 0; i < READERS; i++)
        CHECK(!pthread_create(&readers[i], NULL, read_along, another_log(shared)));
    for (int i = 0; i < APPENDERS; i++)
        CHECK(!pthread_create(&appenders[i], NULL, append_many, another_log(shared)));
    for (int i = 0; i < APPENDERS; i++)
        CHECK(!pthread_join(appenders[i], NULL));
    atomic_store(&over, true);
    for (int i = 0; i < READERS; i++)
        CHECK(!pthread_join(readers[i], NULL));
    CHECK_EQ(bounds_of(shared).latest, APPENDERS * RECORDS);
    CHECK(atomic_load(&seen) > 0);
    end_logs();
}

static void *follow(void *log)
{
    uint64_t offset = 0;

    while (offset < RECORDS) {
        uint32_t wakeup = shmq_log_arm(log);
        uint64_t got = read_some(log, offset, 50);

        offset += got;
        if (!got)
            (void)shmq_stream_sleep(((struct shmq_log *)log)->stream, wakeup, 1000000000);
    }
    return NULL;
}

TEST("all who sleep are woken by what is appended")
{
    pthread_t readers[READERS], appender;

    shared = NEW_LOG(.ring_bytes = 64 << 20);
    for (int i = 0; i < READERS; i++)
        CHECK(!pthread_create(&readers[i], NULL, follow, another_log(shared)));
    CHECK(!pthread_create(&appender, NULL, append_many, another_log(shared)));
    CHECK(!pthread_join(appender, NULL));
    for (int i = 0; i < READERS; i++)
        CHECK(!pthread_join(readers[i], NULL));
    end_logs();
}

static void *append_blocked(void *handle)
{
    struct shmq_log *log = handle;
    uint64_t first;

    for (uint32_t n = 0; n < RECORDS / 10; n++) {
        int status = append_piece(log, 1, 5000, &first);

        while (status == SHMQ_FULL) {
            uint32_t room = shmq_log_room(log);

            status = append_piece(log, 1, 5000, &first);
            if (status == SHMQ_FULL)
                (void)shmq_log_wait_room(log, room, 1000000000);
        }
        CHECK_EQ(status, SHMQ_OK);
    }
    return NULL;
}

TEST("an appender waits for who reads along, who loses nothing")
{
    pthread_t appender;
    struct shmq_log *log;
    uint64_t offset = 0;
    uint32_t cursor;

    log = shared = NEW_LOG(.overflow = SHMQ_LOG_BLOCK);
    CHECK_EQ(shmq_log_lock(log, 0), SHMQ_OK);
    CHECK_EQ(shmq_log_hold(log, SHMQ_HOLD_CURSOR, 0, 0, 0, &cursor), SHMQ_OK);
    shmq_log_unlock(log);
    CHECK(!pthread_create(&appender, NULL, append_blocked, another_log(log)));
    while (offset < RECORDS / 10) {
        CHECK(bounds_of(log).earliest <= offset);
        offset += read_some(log, offset, 5);
        CHECK(shmq_log_move(log, cursor, 0, 0, offset, UINT64_MAX));
    }
    CHECK(!pthread_join(appender, NULL));
    end_logs();
}
