"""The native loop that runs a program: claim work, call kernels, wait, sleep.

A program is data, so this code is the same for every model. Words are i64.

    program:  +0 phases (ptr), +8 counters (ptr), +16 sync (ptr), +24 shares, +32 bytes of counters
              a phase, +40 pauses before an idle worker sleeps, +48 before who waits gives way
    phase:    +0 number of chunks, +8 chunk table (ptr), +16 bounds of shares (ptr); 32 bytes each
    chunk table: number of chunks + 1 pointers into the calls
    call:     +0 function, +8 argument table, +16 begin, +24 end; 32 bytes each
    bounds:   number of shares + 1 chunk numbers: share `s` is chunks [bounds[s], bounds[s + 1])
    counters: for each phase 64 bytes chunks done ever, then for each share 64 bytes claimed ever
    sync:     +0 number of jobs ever, +64 sleepers, +128 stop, +192 waiters,
              +256 ring of 64 jobs: run, first phase, last phase (exclusive); 32 bytes each

A thread takes the chunks of its own share first, then those that others have left. So the
rows that it wrote in one phase, which its core's cache holds, are mostly those that it reads
in the next, and its counter stays in its cache, too.

Counters only grow. In run `r` a share of `n` chunks owns the claims [r*n, (r+1)*n): a
thread that is late from an earlier run finds its range used up, whatever has happened
since, and a phase is over when its chunks are done, whoever did them. So no run waits for
a thread that has claimed nothing, and nothing is ever reset.

Who waits for the last chunks of a phase pauses for a while and then sleeps until they are done (on
Linux): its core falls idle, and the system moves the thread that was pushed aside there, which
yielding does not bring about. A sleep ends after 1 ms at the latest, whatever has happened.
"""

from __future__ import annotations

from loadrun.backends.cpu.target import Target

PHASE_BYTES, CALL_BYTES, LINE = 32, 32, 64
MOST_SHARES = 8  # more would only be looked through in vain
RING, RING_OFFSET, SYNC_BYTES = 64, 256, 256 + 64 * 32
SLEEPERS, STOP = 64, 128

_CHUNK = r"""
define internal void @chunk(ptr %table, i64 %k, ptr %scratch) nounwind {
entry:
  %slot = getelementptr ptr, ptr %table, i64 %k
  %first = load ptr, ptr %slot, align 8
  %slot2 = getelementptr ptr, ptr %slot, i64 1
  %last = load ptr, ptr %slot2, align 8
  %some = icmp ult ptr %first, %last
  br i1 %some, label %each, label %done
each:
  %c = phi ptr [ %first, %entry ], [ %c2, %each ]
  %fn = load ptr, ptr %c, align 8
  %ap = getelementptr i8, ptr %c, i64 8
  %args = load ptr, ptr %ap, align 8
  %bp = getelementptr i8, ptr %c, i64 16
  %b = load i64, ptr %bp, align 8
  %ep = getelementptr i8, ptr %c, i64 24
  %e = load i64, ptr %ep, align 8
  call void %fn(ptr %args, i64 %b, i64 %e, ptr %scratch)
  %c2 = getelementptr i8, ptr %c, i64 32
  %more = icmp ult ptr %c2, %last
  br i1 %more, label %each, label %done
done:
  ret void
}

define void @lr_serial(ptr %program, i64 %first, i64 %last, ptr %scratch) nounwind {
entry:
  %phases = load ptr, ptr %program, align 8
  %some = icmp slt i64 %first, %last
  br i1 %some, label %phase, label %done
phase:
  %p = phi i64 [ %first, %entry ], [ %p2, %next ]
  %o = mul i64 %p, 32
  %ph = getelementptr i8, ptr %phases, i64 %o
  %n = load i64, ptr %ph, align 8
  %tp = getelementptr i8, ptr %ph, i64 8
  %table = load ptr, ptr %tp, align 8
  br label %work
work:
  %k = phi i64 [ 0, %phase ], [ %k2, %work ]
  call void @chunk(ptr %table, i64 %k, ptr %scratch)
  %k2 = add i64 %k, 1
  %more = icmp slt i64 %k2, %n
  br i1 %more, label %work, label %next
next:
  %p2 = add i64 %p, 1
  %again = icmp slt i64 %p2, %last
  br i1 %again, label %phase, label %done
done:
  ret void
}
"""

_RUN = r"""
define internal void @run(ptr %program, i64 %run, i64 %first, i64 %last, i64 %home,
                          ptr %scratch) nounwind {
entry:
  %phases = load ptr, ptr %program, align 8
  %cpp = getelementptr i8, ptr %program, i64 8
  %counters = load ptr, ptr %cpp, align 8
  %sp = getelementptr i8, ptr %program, i64 16
  %sync = load ptr, ptr %sp, align 8
  %np = getelementptr i8, ptr %program, i64 24
  %shares = load i64, ptr %np, align 8
  %wp = getelementptr i8, ptr %program, i64 32
  %width = load i64, ptr %wp, align 8
  %ap = getelementptr i8, ptr %program, i64 48
  %waits = load i64, ptr %ap, align 8
  %waiters = getelementptr i8, ptr %sync, i64 192
  %run1 = add i64 %run, 1
  %some = icmp slt i64 %first, %last
  br i1 %some, label %phase, label %done
phase:
  %p = phi i64 [ %first, %entry ], [ %p2, %next ]
  %o = mul i64 %p, 32
  %ph = getelementptr i8, ptr %phases, i64 %o
  %n = load i64, ptr %ph, align 8
  %tp = getelementptr i8, ptr %ph, i64 8
  %table = load ptr, ptr %tp, align 8
  %bp = getelementptr i8, ptr %ph, i64 16
  %bounds = load ptr, ptr %bp, align 8
  %end = mul i64 %run1, %n
  %co = mul i64 %p, %width
  %finished = getelementptr i8, ptr %counters, i64 %co
  br label %share
share:
  %v = phi i64 [ 0, %phase ], [ %v1, %over ]
  %mine = phi i64 [ 0, %phase ], [ %mine1, %over ]
  %far = add i64 %home, %v
  %past = icmp sge i64 %far, %shares
  %less = sub i64 %far, %shares
  %who = select i1 %past, i64 %less, i64 %far
  %lp = getelementptr i64, ptr %bounds, i64 %who
  %low = load i64, ptr %lp, align 8
  %hp = getelementptr i64, ptr %lp, i64 1
  %high = load i64, ptr %hp, align 8
  %len = sub i64 %high, %low
  %base = mul i64 %run, %len
  %limit = mul i64 %run1, %len
  %who1 = add i64 %who, 1
  %at = mul i64 %who1, 64
  %claim = getelementptr i8, ptr %finished, i64 %at
  br label %look
look:
  %mine1 = phi i64 [ %mine, %share ], [ %mine1, %try ], [ %mine2, %work ]
  %c = load atomic i64, ptr %claim acquire, align 64
  %left = icmp slt i64 %c, %limit
  br i1 %left, label %try, label %over
try:
  %c1 = add i64 %c, 1
  %x = cmpxchg ptr %claim, i64 %c, i64 %c1 acq_rel acquire
  %won = extractvalue { i64, i1 } %x, 1
  br i1 %won, label %work, label %look
work:
  %rank = sub i64 %c, %base
  %k = add i64 %low, %rank
  call void @chunk(ptr %table, i64 %k, ptr %scratch)
  %mine2 = add i64 %mine1, 1
  br label %look
over:
  %v1 = add i64 %v, 1
  %others = icmp slt i64 %v1, %shares
  br i1 %others, label %share, label %report
report:
  %any_mine = icmp sgt i64 %mine1, 0
  br i1 %any_mine, label %add, label %wait
add:
  %old = atomicrmw add ptr %finished, i64 %mine1 seq_cst
  %now = add i64 %old, %mine1
  %final = icmp eq i64 %now, %end
  br i1 %final, label %tell, label %wait
tell:
  NOTIFY
told:
  br label %wait
wait:
  %s = phi i64 [ 0, %report ], [ 0, %add ], [ 0, %told ], [ %s1, %again ], [ 0, %gave ]
  %d = load atomic i64, ptr %finished acquire, align 64
  %ok = icmp sge i64 %d, %end
  br i1 %ok, label %next, label %again
again:
  PAUSE
  %s1 = add i64 %s, 1
  %long = icmp sgt i64 %s1, %waits
  br i1 %long, label %give, label %wait
give:                      ; whoever holds the chunk may need this very core
  GIVE_WAY
gave:
  br label %wait
next:
  %p2 = add i64 %p, 1
  %more = icmp slt i64 %p2, %last
  br i1 %more, label %phase, label %done
done:
  ret void
}

define i64 @lr_launch(ptr %program, i64 %run, i64 %first, i64 %last, ptr %scratch) nounwind {
entry:
  %sp = getelementptr i8, ptr %program, i64 16
  %sync = load ptr, ptr %sp, align 8
  %j = load atomic i64, ptr %sync monotonic, align 64
  %j1 = add i64 %j, 1
  %slot = urem i64 %j1, 64
  %so = mul i64 %slot, 32
  %so2 = add i64 %so, 256
  %r0 = getelementptr i8, ptr %sync, i64 %so2
  store atomic i64 %run, ptr %r0 monotonic, align 8
  %r1 = getelementptr i8, ptr %r0, i64 8
  store atomic i64 %first, ptr %r1 monotonic, align 8
  %r2 = getelementptr i8, ptr %r0, i64 16
  store atomic i64 %last, ptr %r2 monotonic, align 8
  %old = atomicrmw add ptr %sync, i64 1 seq_cst
  %zp = getelementptr i8, ptr %sync, i64 64
  %z = load atomic i64, ptr %zp seq_cst, align 64
  WAKE
  call void @run(ptr %program, i64 %run, i64 %first, i64 %last, i64 0, ptr %scratch)
  ret i64 %z
}

define i64 @lr_worker(ptr %program, i64 %seen, i64 %home, ptr %scratch) nounwind {
entry:
  %sp = getelementptr i8, ptr %program, i64 16
  %sync = load ptr, ptr %sp, align 8
  %zp = getelementptr i8, ptr %sync, i64 64
  %stop = getelementptr i8, ptr %sync, i64 128
  %ip = getelementptr i8, ptr %program, i64 40
  %spins = load i64, ptr %ip, align 8
  br label %loop
loop:
  %last = phi i64 [ %seen, %entry ], [ %j, %did ], [ %last, %woken ]
  br label %spin
spin:
  %s = phi i64 [ 0, %loop ], [ %s1, %again ]
  %j = load atomic i64, ptr %sync acquire, align 64
  %new = icmp ne i64 %j, %last
  br i1 %new, label %job, label %again
again:
  PAUSE
  %s1 = add i64 %s, 1
  %short = icmp slt i64 %s1, %spins
  br i1 %short, label %spin, label %sleep
sleep:                     ; not a yield: on a busy machine each would cost a place in the queue
  SLEEP
woken:
  br label %loop
job:
  %q = load atomic i64, ptr %stop acquire, align 64
  %quit = icmp ne i64 %q, 0
  br i1 %quit, label %leave, label %fetch
fetch:
  %slot = urem i64 %j, 64
  %so = mul i64 %slot, 32
  %so2 = add i64 %so, 256
  %r0 = getelementptr i8, ptr %sync, i64 %so2
  %run = load atomic i64, ptr %r0 acquire, align 8
  %r1 = getelementptr i8, ptr %r0, i64 8
  %first = load atomic i64, ptr %r1 acquire, align 8
  %r2 = getelementptr i8, ptr %r0, i64 16
  %lastp = load atomic i64, ptr %r2 acquire, align 8
  %now = load atomic i64, ptr %sync acquire, align 64
  %age = sub i64 %now, %j
  %fresh = icmp slt i64 %age, 62
  br i1 %fresh, label %work, label %did
work:
  call void @run(ptr %program, i64 %run, i64 %first, i64 %lastp, i64 %home, ptr %scratch)
  br label %did
did:
  br label %loop
leave:
  ret i64 -1
}

define void @lr_pause(i64 %times) nounwind {
entry:
  br label %again
again:
  %k = phi i64 [ 0, %entry ], [ %k1, %again ]
  PAUSE
  %k1 = add i64 %k, 1
  %more = icmp slt i64 %k1, %times
  br i1 %more, label %again, label %done
done:
  ret void
}
"""

# Linux: sleep on the low half of the job number (little endian).
_FUTEX_SLEEP = r"""%a = atomicrmw add ptr %zp, i64 1 seq_cst
  %w = trunc i64 %last to i32
  %f = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %sync, i64 128, i32 %w, ptr null)
  %b = atomicrmw sub ptr %zp, i64 1 seq_cst
  br label %woken"""
_FUTEX_WAKE = r"""%asleep = icmp sgt i64 %z, 0
  br i1 %asleep, label %wake, label %go
wake:
  %f = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %sync, i64 129, i32 2147483647)
  br label %go
go:"""
_FUTEX_GIVE = r"""%u = atomicrmw add ptr %waiters, i64 1 seq_cst
  %d2 = load atomic i64, ptr %finished seq_cst, align 64
  %still = icmp slt i64 %d2, %end
  br i1 %still, label %block, label %unblock
block:
  %seen = trunc i64 %d2 to i32
  %z = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %finished, i64 128, i32 %seen, ptr @a_while)
  br label %unblock
unblock:
  %g = atomicrmw sub ptr %waiters, i64 1 seq_cst
  br label %gave"""
_FUTEX_NOTIFY = r"""%w = load atomic i64, ptr %waiters seq_cst, align 64
  %any = icmp sgt i64 %w, 0
  br i1 %any, label %notify, label %told
notify:
  %f = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %finished, i64 129, i32 2147483647)
  br label %told"""
_YIELD = r"""%y = call i32 @sched_yield()
  br label %gave"""
# Elsewhere the worker returns to Python, which waits on a condition and enters again.
_LEAVE_SLEEP = r"""ret i64 %last"""


def source(target: Target, *, futex: bool) -> str:
    """The module's text. With `futex` idle workers sleep in the kernel (Linux only)."""
    if target.is_x86:
        pause, declare, number = (
            "call void @llvm.x86.sse2.pause()",
            "declare void @llvm.x86.sse2.pause()",
            202,
        )
    else:
        pause, declare, number = (
            "call void @llvm.aarch64.hint(i32 1)",
            "declare void @llvm.aarch64.hint(i32)",
            98,
        )
    text = _CHUNK + _RUN
    text = text.replace("PAUSE", pause)
    text = text.replace("GIVE_WAY", _FUTEX_GIVE if futex else _YIELD)
    text = text.replace("NOTIFY", _FUTEX_NOTIFY if futex else "br label %told")
    text = text.replace("SLEEP", _FUTEX_SLEEP if futex else _LEAVE_SLEEP)
    text = text.replace("WAKE", _FUTEX_WAKE if futex else "")
    text = text.replace("FUTEX", str(number))
    if not futex:
        text = text.replace("woken:\n  br label %loop\n", "")
        text = text.replace(", [ %last, %woken ]", "")
    head = [declare, "declare i32 @sched_yield()"]
    if futex:
        head.append("declare i64 @syscall(i64, ...)")
        head.append("@a_while = internal constant { i64, i64 } { i64 0, i64 1000000 }")
    return "\n".join(head) + text
