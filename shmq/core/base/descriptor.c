#define _GNU_SOURCE
#include "base/descriptor.h"

#include <fcntl.h>
#include <unistd.h>

enum { FIRST_OF_OURS = 3 };

static int is_reserved(void)
{
    return fcntl(0, F_GETFD) >= 0 && fcntl(1, F_GETFD) >= 0 && fcntl(2, F_GETFD) >= 0;
}

void shmq_reserve_standard(void)
{
    int fd = -1;

    if (is_reserved())
        return;
    do
        fd = open("/dev/null", O_PATH | O_CLOEXEC);
    while (fd >= 0 && fd < FIRST_OF_OURS);
    if (fd >= FIRST_OF_OURS)
        (void)close(fd);
}
