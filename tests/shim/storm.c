/* One process of the storm: storm OPS SEED UNIT. It says that it is up and begins when its input ends: random cuMemAlloc and
 * cuMemFree of up to 64 units each, at most 128 held. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "abi.h"

extern CUresult cuInit(unsigned), cuDevicePrimaryCtxRetain(CUcontext *, int), cuCtxSetCurrent(CUcontext);
extern CUresult cuMemAlloc_v2(CUdeviceptr *, size_t), cuMemFree_v2(CUdeviceptr);

int main(int argc, char **argv) {
    long ops = argc > 1 ? atol(argv[1]) : 1000;
    uint64_t x = argc > 2 ? strtoull(argv[2], NULL, 10) * 0x9e3779b97f4a7c15u + 1 : 1, unit = argc > 3 ? strtoull(argv[3], NULL, 10) : 4096;
    CUcontext c;
    CUdeviceptr held[128];
    int n = 0;
    long refused = 0;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&c, 0) || cuCtxSetCurrent(c)) return 3;
    puts("up");
    fflush(stdout);
    for (char some[64]; read(0, some, sizeof some) > 0;)
        ;
    for (long i = 0; i < ops; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        if (n == 128 || (n && x % 16 < 7)) {
            int k = (int)(x >> 8) % n;
            if (k < 0) k += n;
            if (cuMemFree_v2(held[k])) return 4;
            held[k] = held[--n];
        } else {
            CUresult r = cuMemAlloc_v2(&held[n], (x >> 20) % 64 * unit + 1);
            if (r == CU_OK) n++;
            else if (r != CU_OUT_OF_MEMORY) return 5;
            else refused++;
        }
    }
    while (n) /* those that live to the end give everything back themselves */
        if (cuMemFree_v2(held[--n])) return 4;
    printf("%ld\n", refused);
    return 0;
}
