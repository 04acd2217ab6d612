/* The simulated libnvidia-ml: defines every other name, because programs treat a missing symbol as a broken driver. */
#include "nvml_names.h"

#define NOT_SUPPORTED 3
#define STUB(name)                                                          \
    __attribute__((weak, visibility("default"))) int name(void);            \
    __attribute__((weak, visibility("default"))) int name(void) { return NOT_SUPPORTED; }
NVML_NAMES(STUB)
