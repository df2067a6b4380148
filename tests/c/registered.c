#define _GNU_SOURCE
#include "registered.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "harness.h"

#define FIRST (SHMQ_FIRST_PROCESS + 1000)

static struct shmq_process self = {.fd = -1};

static int lock_byte(uint64_t byte, short kind)
{
    struct flock lock = {.l_type = kind, .l_whence = SEEK_SET, .l_start = (off_t)byte, .l_len = 1};

    return fcntl(self.fd, F_SETLKW, &lock);
}

uint64_t next_number(void)
{
    uint64_t next = 0;

    CHECK(pread(registered()->fd, &next, sizeof next, 0) == sizeof next);
    return next;
}

static uint64_t give_out(void)
{
    uint64_t number, next;

    CHECK(!lock_byte(0, F_WRLCK));
    CHECK(pread(self.fd, &number, sizeof number, 0) == sizeof number);
    next = number + 1;
    CHECK(pwrite(self.fd, &next, sizeof next, 0) == sizeof next);
    CHECK(!lock_byte(0, F_UNLCK));
    return number;
}

static void enter(void)
{
    uint64_t number = give_out();

    CHECK(!lock_byte(number, F_WRLCK));
    self.number = number;
}

static void enter_child(void)
{
    self.number = 0;
    enter();
}

struct shmq_process *registered(void)
{
    uint64_t first = FIRST;

    if (self.fd >= 0)
        return &self;
    self.fd = memfd_create("namespace", MFD_CLOEXEC);
    CHECK(self.fd >= 0 && pwrite(self.fd, &first, sizeof first, 0) == sizeof first);
    self.first = first;
    enter();
    CHECK(!pthread_atfork(NULL, NULL, enter_child));
    return &self;
}

uint64_t dead_number(void)
{
    (void)registered();
    return give_out();
}
