/* The simulated libnvidia-ml: every other name is there, because programs take a missing symbol for a broken driver. */
#include "nvml_names.h"

#define NOT_SUPPORTED 3
#define STUB(name)                                                          \
    __attribute__((weak, visibility("default"))) int name(void);            \
    __attribute__((weak, visibility("default"))) int name(void) { return NOT_SUPPORTED; }
NVML_NAMES(STUB)
