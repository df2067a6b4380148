/* Dispatch: one table maps the type of a request to its handler. */
#ifndef SHMQ_SERVER_DISPATCH_H
#define SHMQ_SERVER_DISPATCH_H

#include "server/session.h"

/* Carries out the whole frame at `frames`, whose header is valid, and following frames that can be
 * carried out together with it: sets frames->at to the place behind the last. */
void shmq_dispatch(struct shmq_session *session, const struct shmq_frame *frame,
                   struct shmq_frames *frames);

#endif
