/* die_inside SEGMENT: takes the lock of a queue and is killed while holding it. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "queue/layout.h"

int main(int argc, char **argv)
{
    int fd = argc == 2 ? open(argv[1], O_RDWR) : -1;
    struct shmq_header *header =
        mmap(NULL, sizeof(*header), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (header == MAP_FAILED) {
        fprintf(stderr, "usage: die_inside SEGMENT, which can be opened\n");
        return 2;
    }
    atomic_store(&header->lock.word, 1 << 1); /* a process that never was */
    kill(getpid(), SIGKILL);
    return 1;
}
