/* Dispatch: one table says who carries out a request, by its type. */
#ifndef SHMQ_SERVER_DISPATCH_H
#define SHMQ_SERVER_DISPATCH_H

#include "server/session.h"

/* Carries out the whole frame at `frames`, with a good header, and such that follow it and can be
 * carried out together with it: frames->at is behind the last. */
void shmq_dispatch(struct shmq_session *session, const struct shmq_frame *frame,
                   struct shmq_frames *frames);

#endif
