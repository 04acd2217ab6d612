/* A program that computes: worker KERNEL_US DEPTH ON_MS OFF_MS END_MS. Launches DEPTH kernels, waits for them, again, for
 * ON_MS; pauses for OFF_MS (0: never); until END_MS of the card's clock. Says ready and waits for a line before: awake, so
 * that the simulated clock stands still until all have begun, however late a busy machine lets them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "abi.h"

extern CUresult cuInit(unsigned), cuDevicePrimaryCtxRetain(CUcontext *, int), cuCtxSetCurrent(CUcontext);
extern CUresult cuModuleLoadData(CUmodule *, const void *), cuModuleGetFunction(CUfunction *, CUmodule, const char *);
extern CUresult cuStreamCreate(CUstream *, unsigned), cuStreamSynchronize(CUstream), cuCtxSynchronize(void);
extern CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **);
extern uint64_t pliantSimNow(void);
extern void pliantSimSleep(uint64_t);

int main(int argc, char **argv) {
    if (argc < 6) return 2;
    char name[32], line[8];
    uint64_t depth = strtoull(argv[2], NULL, 10), on = strtoull(argv[3], NULL, 10) * 1000000u, off = strtoull(argv[4], NULL, 10) * 1000000u,
             end = strtoull(argv[5], NULL, 10) * 1000000u;
    CUcontext c;
    CUmodule m;
    CUfunction f;
    CUstream s;
    snprintf(name, sizeof name, "k%sus", argv[1]);
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&c, 0) || cuCtxSetCurrent(c)) return 3;
    if (cuModuleLoadData(&m, "") || cuModuleGetFunction(&f, m, name) || cuStreamCreate(&s, 0)) return 4;
    pliantSimSleep(0); /* from now on the card knows this thread */
    puts("ready");
    fflush(stdout);
    fcntl(0, F_SETFL, O_NONBLOCK);
    ssize_t got;
    while ((got = read(0, line, sizeof line)) < 0 && errno == EAGAIN) sched_yield();
    if (got <= 0) return 5;
    uint64_t begun = pliantSimNow(), phase = begun;
    while (pliantSimNow() - begun < end) {
        for (uint64_t i = 0; i < depth; i++)
            if (cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL)) return 6;
        if (cuStreamSynchronize(s)) return 7;
        if (off && pliantSimNow() - phase >= on) {
            pliantSimSleep(off);
            phase = pliantSimNow();
        }
    }
    return 0;
}
