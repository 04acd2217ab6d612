/* Times three loops on the driver that it is linked with, for benchmarks/shim.py: ns per operation, one line each round. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "abi.h"

extern CUresult cuInit(unsigned), cuDevicePrimaryCtxRetain(CUcontext *, int), cuCtxSetCurrent(CUcontext);
extern CUresult cuMemAlloc_v2(CUdeviceptr *, size_t), cuMemFree_v2(CUdeviceptr);
extern CUresult cuModuleLoadData(CUmodule *, const void *), cuModuleGetFunction(CUfunction *, CUmodule, const char *);
extern CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **);

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 5, n = argc > 2 ? atol(argv[2]) : 200000;
    CUcontext c;
    CUmodule m;
    CUfunction f;
    CUdeviceptr p;
    void *libc = dlopen("libc.so.6", RTLD_NOW);
    if (argc > 3) { /* a program that uses no GPU: names only */
        for (long r = 0; r < rounds; r++) {
            double from = now();
            for (long i = 0; i < n; i++)
                if (!dlsym(libc, "printf")) return 7;
            printf("%.2f\n", (now() - from) / (double)n);
        }
        return 0;
    }
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&c, 0) || cuCtxSetCurrent(c)) return 3;
    if (cuModuleLoadData(&m, "") || cuModuleGetFunction(&f, m, "empty")) return 4;
    for (long r = 0; r < rounds; r++) {
        double a = now();
        for (long i = 0; i < n; i++)
            if (cuMemAlloc_v2(&p, 4096) || cuMemFree_v2(p)) return 5;
        double b = now();
        for (long i = 0; i < n * 10; i++)
            if (cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL)) return 6;
        double d = now();
        printf("%.2f %.3f\n", (b - a) / (double)n, (d - b) / (double)(n * 10));
    }
    return 0;
}
