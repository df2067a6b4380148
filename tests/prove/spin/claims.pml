/* The writer's claims: what is on disk is what the queue holds, whoever dies.
 *
 * One slot is used for one message after the other, and one who puts and settles stands for
 * all, as both are under a lock. The writer follows without one, step by step, and may die
 * between any two of its steps. README.md says which lines of the code the steps stand for.
 *
 * A processor may do a load before a store that comes first in the program: where there is no
 * fence between the two, the broken models do just that. */

#ifndef MESSAGES
#define MESSAGES 3
#endif
#ifndef MOST_DEATHS
#define MOST_DEATHS 1
#endif

#define FREE 0
#define READY 1
#define SPENT 2

/* ---- shared memory ---- */

byte word, seq;
byte body[2];          /* the writer copies it in two steps */
byte fresh;            /* fresh_tail: the last put that is over */
bool hinted;           /* the slot is in the ring of what was settled */
byte logged, batch;    /* the slot's claim */
byte published;        /* the last batch that is on disk */
byte synced;
bool locked;           /* somebody settles */

/* ---- the disk ---- */

bool has[MESSAGES + 1];

/* ---- the run ---- */

bool over;             /* every message has been settled */
byte deaths;

active proctype queue()
{
    byte n = 1;
    bool claimed;

    do
    :: n <= MESSAGES ->
        word == FREE;
        body[0] = n;
        body[1] = n;
        seq = n;
        word = READY;
        fresh = n;
        /* shmq_spend */
        locked = true;
#ifdef BROKEN_NO_FENCE_OF_THE_SETTLER
        claimed = (logged == seq);
        word = SPENT;
#else
        word = SPENT;
        claimed = (logged == seq);
#endif
#ifdef BROKEN_FREED_AT_ONCE
        claimed = false;
#endif
        if
        :: claimed -> hinted = true
        :: else -> word = FREE
        fi;
        locked = false;
        n++
    :: else -> break
    od;
    over = true
}

inline die()
{
    if
    :: deaths < MOST_DEATHS -> deaths++; goto born
    :: true
    fi
}

active proctype writer()
{
    byte number, covered, seen, done;
    byte part[2];
    byte put, settle;
    bool last;

born:
    covered = 0;
    d_step { seen = 0; done = 0; put = 0; settle = 0; number = published + 1 }
    /* shmq_disclaim: what the dead one claimed and did not publish */
#ifndef BROKEN_CLAIMS_ARE_TRUSTED
    if
    :: batch > published && word == READY -> logged = 0
    :: else
    fi;
#endif
    hinted = true; /* every slot is looked at */
    do
    :: (fresh != synced || hinted || over);
       last = over;
       /* shmq_collect: settlements */
       hinted = false;
       if
       :: word == SPENT ->
            seen = seq;
#ifndef BROKEN_A_GLANCE_IS_TRUSTED
            if
            :: word == SPENT
            :: else -> seen = 0
            fi;
#endif
            if
            :: seen && logged == seen -> settle = seen
            :: else
            fi;
            done = seen
       :: else
       fi;
       die();
       /* then puts */
       covered = fresh;
       if
       :: word == READY -> seen = seq
       :: else -> seen = 0
       fi;
       if
       :: seen && seen <= covered && logged != seen ->
            batch = number;
#ifdef BROKEN_NO_FENCE_OF_THE_WRITER
            put = (word == READY && seq == seen -> seen : 0);
            logged = seen;
#else
            logged = seen;
            put = (word == READY && seq == seen -> seen : 0);
#endif
            die();
            if
            :: put ->
                part[0] = body[0];
                die();
                part[1] = body[1];
                /* the bytes are the message's, whatever became of it meanwhile */
                assert(part[0] == put && part[1] == put);
                if
                :: word == READY
                :: else -> put = 0
                fi
            :: else
            fi;
            if
            :: !put -> logged = 0
            :: else
            fi
       :: else
       fi;
       die();
       /* written and synced; then shmq_mark_synced */
       d_step {
           if :: settle -> has[settle] = false :: else fi;
           if :: put -> has[put] = true :: else fi;
           published = number
       }
       synced = covered;
       number++;
       d_step {
           /* who waited for the disk has it: or the message is over */
           assert(word != READY || seq > synced || has[seq])
       }
       die();
       /* shmq_release */
       d_step {
           !locked;
           if
           :: done && word == SPENT && seq == done -> logged = 0; word = FREE
           :: else
           fi;
           done = 0; put = 0; settle = 0
       }
       die();
       if
       :: last && word == FREE && !hinted && synced == MESSAGES -> break
       :: else
       fi
    od;
    atomic {
        for (seen : 1 .. MESSAGES) {
            assert(!has[seen])
        }
    }
}
