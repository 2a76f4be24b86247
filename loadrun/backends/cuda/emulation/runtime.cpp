// The emulated device: blocks one after the other, their threads in a loop or as fibers.
//
// Fibers of a warp run until each waits at a warp exchange, waits at a barrier or is done; the warp
// goes on when all wait for the same thing, the block when all its warps wait at the barrier.
// Anything else is divergence, which hardware answers with a hang or garbage: an error here. Blocks
// take the threads in ascending and descending order by turns, so that races show.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

extern "C" {
struct dim3 { unsigned x, y, z; };
dim3 threadIdx, blockIdx, blockDim, gridDim;
}

namespace {
enum { MOST = 1024, STACK = 128 << 10, ALT = 64 << 10 };
enum State { READY, AT_BARRIER, AT_EXCHANGE, DONE };
enum Result { OK, OUT_OF_BOUNDS, DIVERGED, NO_MEMORY, MISALIGNED };

struct Fiber {
  jmp_buf at;
  State state;
  bool begun;
  unsigned turn;
};
Fiber fibers[MOST];
unsigned long long slots[2][MOST];
char *stacks;
ucontext_t first, main_context;
jmp_buf scheduler;
sigjmp_buf trouble;
volatile sig_atomic_t running;
void *bad_address;
int current;
void (*body)(void **);
void **arguments;

void set_thread(int t) {
  threadIdx.x = (unsigned)t % blockDim.x;
  threadIdx.y = (unsigned)t / blockDim.x % blockDim.y;
  threadIdx.z = (unsigned)t / (blockDim.x * blockDim.y);
}

// A fiber serves one thread of every block of a launch.
void fiber_main() {
  for (;;) {
    body(arguments);
    fibers[current].state = DONE;
    if (!_setjmp(fibers[current].at)) _longjmp(scheduler, 1);
  }
}

void resume(int t) {
  current = t;
  set_thread(t);
  if (_setjmp(scheduler)) return;
  Fiber &f = fibers[t];
  if (f.begun) _longjmp(f.at, 1);
  f.begun = true;
  getcontext(&first);
  first.uc_stack.ss_sp = stacks + (size_t)t * STACK;
  first.uc_stack.ss_size = STACK;
  first.uc_link = nullptr;
  makecontext(&first, fiber_main, 0);
  setcontext(&first);
}

void wait_as(State state) {
  Fiber &f = fibers[current];
  f.state = state;
  if (!_setjmp(f.at)) _longjmp(scheduler, 1);
  f.state = READY;
}

// Runs a warp to its next barrier or its end.
bool run_warp(int begin, int end, bool down) {
  for (;;) {
    int waiting = 0, exchanging = 0, done = 0;
    for (int k = begin; k < end; k++) {
      int t = down ? end - 1 - (k - begin) : k;
      if (fibers[t].state != DONE) resume(t);
    }
    for (int t = begin; t < end; t++) {
      waiting += fibers[t].state == AT_BARRIER;
      exchanging += fibers[t].state == AT_EXCHANGE;
      done += fibers[t].state == DONE;
    }
    if (waiting == end - begin || done == end - begin) return true;
    if (exchanging != end - begin) return false;
  }
}

bool run_block(int threads, bool down) {
  for (int t = 0; t < threads; t++) {
    fibers[t].state = READY;
    fibers[t].turn = 0;
  }
  for (;;) {
    int warps = (threads + 31) / 32;
    for (int k = 0; k < warps; k++) {
      int w = down ? warps - 1 - k : k;
      int end = w * 32 + 32 < threads ? w * 32 + 32 : threads;
      if (!run_warp(w * 32, end, down)) return false;
    }
    int done = 0;
    for (int t = 0; t < threads; t++) done += fibers[t].state == DONE;
    if (done == threads) return true;
    if (done) return false;
  }
}

void on_fault(int number, siginfo_t *info, void *) {
  if (!running) {
    signal(number, SIG_DFL);
    raise(number);
    return;
  }
  bad_address = info->si_addr;
  siglongjmp(trouble, OUT_OF_BOUNDS);
}

int run_grid(int threads, int as_fibers, char *shared, char *shared_end) {
  unsigned long long count = 0;
  for (int t = 0; t < threads; t++) fibers[t].begun = false;
  for (unsigned z = 0; z < gridDim.z; z++)
    for (unsigned y = 0; y < gridDim.y; y++)
      for (unsigned x = 0; x < gridDim.x; x++, count++) {
        blockIdx.x = x, blockIdx.y = y, blockIdx.z = z;
        if (shared && count < 4) memset(shared, 0xff, (size_t)(shared_end - shared));
        if (as_fibers) {
          if (!run_block(threads, count & 1)) return DIVERGED;
        } else {
          for (int t = 0; t < threads; t++) {
            set_thread(t);
            body(arguments);
          }
        }
      }
  return OK;
}
}  // namespace

// A copy whose addresses are no multiples of its size.
extern "C" void emulated_misaligned(const void *at) {
  bad_address = const_cast<void *>(at);
  siglongjmp(trouble, MISALIGNED);
}

extern "C" void emulated_barrier(int) { wait_as(AT_BARRIER); }

extern "C" unsigned long long emulated_exchange(unsigned long long bits, int lane) {
  unsigned side = fibers[current].turn++ & 1;
  int self = current;
  slots[side][self] = bits;
  wait_as(AT_EXCHANGE);
  return slots[side][(self & ~31) + (lane & 31)];
}

// Runs a grid; 0, or what went wrong, with the address in `fault` for an access out of bounds.
extern "C" int emulated_run(void (*kernel)(void **), void **args, const unsigned *shape,
                            int as_fibers, char *shared, char *shared_end,
                            unsigned long long *fault) {
  gridDim = {shape[0], shape[1], shape[2]};
  blockDim = {shape[3], shape[4], shape[5]};
  int threads = (int)(blockDim.x * blockDim.y * blockDim.z);
  body = kernel;
  arguments = args;
  static char *alternate;
  if (!stacks) {
    void *found = mmap(nullptr, (size_t)MOST * STACK + ALT, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found == MAP_FAILED) return NO_MEMORY;
    stacks = (char *)found;
    alternate = stacks + (size_t)MOST * STACK;
  }
  stack_t mine = {}, before = {};
  mine.ss_sp = alternate;
  mine.ss_size = ALT;
  sigaltstack(&mine, &before);
  struct sigaction action = {}, old_segv = {}, old_bus = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigaction(SIGSEGV, &action, &old_segv);
  sigaction(SIGBUS, &action, &old_bus);
  int result;
  if (int found = sigsetjmp(trouble, 1)) {
    result = found;
    *fault = (unsigned long long)bad_address;
  } else {
    running = 1;
    result = threads > MOST ? NO_MEMORY : run_grid(threads, as_fibers, shared, shared_end);
  }
  running = 0;
  sigaction(SIGSEGV, &old_segv, nullptr);
  sigaction(SIGBUS, &old_bus, nullptr);
  sigaltstack(&before, nullptr);
  return result;
}
