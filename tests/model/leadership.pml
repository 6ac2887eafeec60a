/* Election, leader lease, promotion and prepared space, for the model checker spin.
 *
 * Two nodes, one store, one extent of memory, discrete time. Messages to the store are a send and a commit, with any
 * number of ticks between them. Each PLANTED bug is one broken rule; without any, no assertion fails in any run.
 *
 *     spin -a leadership.pml && gcc -O2 -DSAFETY -o pan pan.c && ./pan -m200000
 *     spin -DBUG_NO_WAIT -a leadership.pml && ...
 */

#define NODES 2
#define TTL 3      /* of the leader key, and of the leader lease */
#define MARGIN 1   /* a leader stops answering this long before */
#define RELEASE 3  /* the longest time that a writer uses its space */
#define EPOCHS 3   /* leaderships in one run */
#define NOBODY 9
#define NOT_SENT 0
#define SENT 1
#define COMMITTED 2

mtype = { STANDBY, PROMOTING, PRIMARY, DEAD };
mtype = { FREE, PREPARED, OBJECT, QUARANTINED };

/* the store */
byte leader = NOBODY;       /* the leader key */
byte epoch = 0;             /* the create revision of the last leader key */
byte key_left = 0;          /* ticks until the key's lease expires */
bool ended[EPOCHS + 1];     /* end markers: the leader of this epoch will not answer again */
byte written = 0;           /* the epoch of the last journal record */
mtype space = FREE;         /* the extent, by the durable records */
byte quarantine_left = 0;

/* the nodes */
mtype role[NODES] = STANDBY;
byte mine[NODES];           /* the node's epoch */
byte serve_left[NODES];     /* ticks of its leader lease */
byte sent_left[NODES];      /* the lease that a write in flight will give */
byte in_flight[NODES];      /* of a journal write: NOT_SENT, SENT or COMMITTED, until its answer arrives */
byte wait_left[NODES];      /* of a promotion */
bool given[NODES];          /* the primary gave prepared space to a writer; its PutStart is not durable yet */
bool early[NODES];          /* BUG_EARLY_PREPARE: space that only this node takes for prepared */

/* the writer */
byte writing_left = 0;      /* ticks that a writer may still write to the extent */

#ifdef BUG_NO_LEASE
#define may_answer(n) (role[n] == PRIMARY)
#else
#define may_answer(n) (role[n] == PRIMARY && serve_left[n] > 0)
#endif

#ifdef BUG_NO_FENCE
#define fence_holds(n) (true)
#else
#define fence_holds(n) (leader == n && epoch == mine[n])
#endif

inline forget(n) {
    serve_left[n] = 0; sent_left[n] = 0; in_flight[n] = NOT_SENT; wait_left[n] = 0; given[n] = false; early[n] = false
}

/* A journal write of this node is committed. */
inline record(n) {
    assert(written <= mine[n]);     /* P4: no deposed leader writes */
    written = mine[n]
}

/* P3: no byte is handed to two writers. */
inline hand_out() {
    assert(writing_left == 0);
    writing_left = RELEASE
}

proctype Node(byte n) {
end:
    do
    /* --- election --- */
    :: atomic { role[n] == STANDBY && leader == NOBODY && epoch < EPOCHS ->
        epoch++; leader = n; key_left = TTL; mine[n] = epoch; role[n] = PROMOTING;
#ifdef BUG_NO_WAIT
        wait_left[n] = 0
#else
        if
#ifdef BUG_MARKER_OF_ANOTHER_EPOCH
        :: ended[epoch - 1] -> wait_left[n] = 0  /* that epoch may never have begun, and an older leader answers */
#endif
        :: written == 0 || ended[written] -> wait_left[n] = 0
        :: else -> wait_left[n] = TTL
        fi
#endif
        }
    :: atomic { leader == n && role[n] != DEAD && key_left < TTL -> key_left = TTL;  /* a keep-alive */
#ifdef BUG_KEEP_ALIVE_EXTENDS
        if :: role[n] == PRIMARY -> serve_left[n] = TTL - MARGIN :: else fi
#endif
        }
#ifdef BUG_KEEP_ALIVE_EXTENDS
    :: atomic { role[n] == PRIMARY && leader != n -> serve_left[n] = TTL - MARGIN }  /* its lease outlives its key */
#endif
    /* --- writes: a send, a commit and an answer, with any time between them --- */
    :: atomic { in_flight[n] == NOT_SENT && (role[n] == PRIMARY || (role[n] == PROMOTING && wait_left[n] == 0)) ->
        in_flight[n] = SENT; sent_left[n] = TTL - MARGIN }
    :: atomic { in_flight[n] == SENT && fence_holds(n) ->
        in_flight[n] = COMMITTED;
        record(n);
        if
        :: role[n] == PROMOTING && space == PREPARED ->  /* the record is `begin` */
#ifdef BUG_FREE_PREPARED
            space = FREE
#else
            if
#ifdef BUG_SNAPSHOT_WITHOUT_PREPARED
            :: space = FREE  /* this node was rebuilt from a snapshot */
#endif
            :: space = QUARANTINED;
#ifdef BUG_RELEASE_FROM_OWN_SETTING
                quarantine_left = RELEASE - 1
#else
                quarantine_left = RELEASE
#endif
            fi
#endif
        :: else
        fi }
    :: atomic { in_flight[n] == COMMITTED ->
        in_flight[n] = NOT_SENT; role[n] = PRIMARY;
#ifdef BUG_LEASE_FROM_RECEIPT
        serve_left[n] = TTL - MARGIN;
#else
        serve_left[n] = sent_left[n];
#endif
        sent_left[n] = 0 }
    :: atomic { in_flight[n] == SENT && !fence_holds(n) -> forget(n); role[n] = STANDBY }  /* deposed */
    /* --- prepared space --- */
    :: atomic { may_answer(n) && fence_holds(n) && space == FREE && !early[n] ->
        record(n); space = PREPARED }  /* the Prepare record */
#ifdef BUG_EARLY_PREPARE
    :: atomic { may_answer(n) && space == FREE && !early[n] -> early[n] = true; hand_out() }
    :: atomic { early[n] && fence_holds(n) -> record(n); early[n] = false; space = OBJECT }
#endif
    :: atomic { may_answer(n) && mine[n] == epoch && space == PREPARED && !given[n] -> given[n] = true; hand_out() }
    :: atomic { given[n] && fence_holds(n) && space == PREPARED ->
        record(n); given[n] = false; space = OBJECT }  /* the PutStart record */
    :: atomic { may_answer(n) && fence_holds(n) && space == OBJECT && writing_left == 0 ->
        record(n); space = FREE }  /* put_end, and later a remove */
    /* --- a planned switchover: everything is flushed, the rest of prepared space is free --- */
#ifdef BUG_HANDOVER_UNFLUSHED
    :: atomic { may_answer(n) && fence_holds(n) && in_flight[n] == NOT_SENT ->
#else
    :: atomic { may_answer(n) && fence_holds(n) && in_flight[n] == NOT_SENT && !given[n] ->
#endif
        record(n);
        if :: space == PREPARED -> space = FREE :: else fi;
        leader = NOBODY; key_left = 0; ended[mine[n]] = true; forget(n); role[n] = STANDBY }
    /* --- the worker dies; its guardian deletes the key and writes the end marker --- */
    :: atomic { role[n] == PRIMARY || role[n] == PROMOTING -> forget(n); role[n] = DEAD }
    :: atomic { role[n] == DEAD ->
        if
        :: leader == n && epoch == mine[n] -> leader = NOBODY; key_left = 0; ended[mine[n]] = true
        :: true  /* the whole host died */
        fi;
        role[n] = STANDBY }
#ifdef BUG_GUARDIAN_TRUSTS_A_PIPE
    :: atomic { role[n] == PRIMARY && leader == n && epoch == mine[n] ->  /* the worker is only stopped */
        leader = NOBODY; key_left = 0; ended[mine[n]] = true }
#endif
    od
}

/* One tick of all clocks. Any number of actions fits between two ticks, and any node may be slow. */
proctype Clock() {
end:
    do
    :: atomic { epoch > 0 ->
        if :: key_left > 1 -> key_left-- :: key_left == 1 -> key_left = 0; leader = NOBODY :: else fi;
        if
        :: quarantine_left > 1 -> quarantine_left--
        :: quarantine_left == 1 -> quarantine_left = 0; space = FREE
        :: else
        fi;
        if :: writing_left > 0 -> writing_left-- :: else fi;
        byte i;
        for (i : 0 .. NODES - 1) {
            if :: serve_left[i] > 0 -> serve_left[i]-- :: else fi;
            if :: sent_left[i] > 0 -> sent_left[i]-- :: else fi;
            if :: wait_left[i] > 0 -> wait_left[i]-- :: else fi
        }
        i = 0 }
    od
}

/* An operator deletes the leader key. */
proctype Operator() {
end:
    atomic { leader != NOBODY -> leader = NOBODY; key_left = 0 }
}

/* P4: at no moment may two nodes answer. */
proctype OnePrimary() {
end:
    atomic { may_answer(0) && may_answer(1) -> assert(false) }
}

init {
    atomic { run Node(0); run Node(1); run Clock(); run Operator(); run OnePrimary() }
}
