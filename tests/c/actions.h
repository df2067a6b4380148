/* What an actor can do: each is one operation of the queue, with random arguments. */
#pragma once

#include "actor.h"

typedef void action(struct actor *a);

action do_put, do_quick_put, do_reserve, do_fill, do_stage, do_commit_staged, do_abandon;

action do_lease, do_run, do_hand, do_mark_acked, do_finish, do_settle;

action do_pin, do_unpin, do_die, do_close, do_recover;

action do_take, do_move, do_disown, do_void_copies, do_purge, do_pass_time, do_sleep, do_starve;
