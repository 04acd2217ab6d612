/* What a task that could not be started writes to its supervisor; it writes nothing once its program runs. */
#ifndef PLIANT_TASK_H
#define PLIANT_TASK_H
#include <stdbool.h>

struct exec_error {
    int err;
    bool folder;   /* the working directory failed */
    char what[32]; /* else, if not empty: the step before exec that failed */
};
#endif
