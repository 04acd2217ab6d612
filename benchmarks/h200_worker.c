/* For h200_fractions.sh, on a real GPU through the driver's interface alone. Modes:
 *   entries                     every entry point of hooks.h: is cuGetProcAddress's address that of the export?
 *   malloc BYTES N              ns per cuMemAlloc+cuMemFree
 *   launch N                    ns per launch of an empty kernel
 *   spin US SECONDS ON OFF      kernels of US us one after another (paused OFF ms after each ON ms); prints how many
 *                               ran, the GPU time they took and the 99th percentile of their latency */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "abi.h"
#include "shim/hooks.h"

extern CUresult cuInit(unsigned), cuDevicePrimaryCtxRetain(CUcontext *, int), cuCtxSetCurrent(CUcontext), cuCtxSynchronize(void);
extern CUresult cuMemAlloc_v2(CUdeviceptr *, size_t), cuMemFree_v2(CUdeviceptr), cuStreamSynchronize(CUstream);
extern CUresult cuModuleLoadData(CUmodule *, const void *), cuModuleGetFunction(CUfunction *, CUmodule, const char *);
extern CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **);

static const char ptx[] = ".version 7.0\n.target sm_50\n.address_size 64\n"
                          ".visible .entry empty() { ret; }\n"
                          ".visible .entry spin(.param .u64 ns) {\n"
                          ".reg .u64 %a, %b, %n; .reg .pred %p;\n"
                          "ld.param.u64 %n, [ns]; mov.u64 %a, %globaltimer;\n"
                          "L: mov.u64 %b, %globaltimer; sub.u64 %b, %b, %a; setp.lt.u64 %p, %b, %n; @%p bra L; ret; }\n";

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int entries(void) {
    static const struct {
        const char *name, *base;
        int since, variant;
    } rows[] = {
#define ROW(name, base, since, variant, args) {#name, #base, since, variant},
        HOOKS(ROW) NEEDED(ROW)};
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    CUresult (*get)(const char *, void **, int, uint64_t, int *) = NULL;
    *(void **)&get = dlsym(driver, "cuGetProcAddress_v2");
    int equal = 0, missing = 0;
    printf("{\"differ\": [");
    for (size_t i = 0, n = 0; i < sizeof rows / sizeof *rows; i++) {
        void *named = dlsym(driver, rows[i].name), *got = NULL;
        CUresult r = get(rows[i].base, &got, rows[i].since, rows[i].variant ? PROC_PER_THREAD_STREAM : PROC_LEGACY_STREAM, NULL);
        if (!named) missing++;
        else if (r == CU_OK && got == named) equal++;
        else printf("%s\"%s\"", n++ ? ", " : "", rows[i].name);
    }
    printf("], \"equal\": %d, \"not_exported\": %d}\n", equal, missing);
    return 0;
}

static int by_size(const void *a, const void *b) { return *(const double *)a < *(const double *)b ? -1 : 1; }

int main(int argc, char **argv) {
    CUcontext c;
    CUmodule m;
    CUfunction f;
    CUdeviceptr p;
    if (argc < 2) return 2;
    if (cuInit(0)) return 3;
    if (strcmp(argv[1], "entries") == 0) return entries();
    if (cuDevicePrimaryCtxRetain(&c, 0) || cuCtxSetCurrent(c) || cuModuleLoadData(&m, ptx)) return 4;
    if (strcmp(argv[1], "malloc") == 0) {
        size_t bytes = strtoull(argv[2], NULL, 10);
        long n = atol(argv[3]);
        double from = now();
        for (long i = 0; i < n; i++)
            if (cuMemAlloc_v2(&p, bytes) || cuMemFree_v2(p)) return 5;
        printf("%.1f\n", (now() - from) / (double)n);
    } else if (strcmp(argv[1], "launch") == 0) {
        long n = atol(argv[2]);
        if (cuModuleGetFunction(&f, m, "empty")) return 5;
        for (int i = 0; i < 1000; i++) cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
        cuCtxSynchronize();
        double from = now();
        for (long i = 0; i < n; i++)
            if (cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL)) return 6;
        cuCtxSynchronize();
        printf("%.1f\n", (now() - from) / (double)n);
    } else {
        enum { MOST = 200000 };
        static double latency[MOST];
        uint64_t ns = strtoull(argv[2], NULL, 10) * 1000u;
        double seconds = atof(argv[3]) * 1e9, on = atof(argv[4]) * 1e6, off = atof(argv[5]) * 1e6;
        void *params[] = {&ns};
        long n = 0;
        if (cuModuleGetFunction(&f, m, "spin")) return 5;
        printf("ready\n");
        fflush(stdout);
        if (getchar() == EOF) return 7;
        double begun = now(), phase = begun;
        while (now() - begun < seconds && n < MOST) {
            double from = now();
            if (cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL) || cuStreamSynchronize(NULL)) return 6;
            latency[n++] = now() - from;
            if (off > 0 && now() - phase >= on) {
                usleep((useconds_t)(off / 1000));
                phase = now();
            }
        }
        qsort(latency, (size_t)n, sizeof *latency, by_size);
        printf("{\"kernels\": %ld, \"gpu_s\": %.4f, \"p99_ms\": %.3f}\n", n, (double)n * (double)ns / 1e9, n ? latency[n * 99 / 100] / 1e6 : 0.0);
    }
    return 0;
}
