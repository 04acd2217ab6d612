/* What a task that could not be started writes to its supervisor; nothing comes once its program runs. */
#ifndef PLIANT_TASK_H
#define PLIANT_TASK_H
#include <stdbool.h>

struct exec_error {
    int err;
    bool folder;   /* it was the working directory that failed */
    char what[32]; /* else, if not empty, what the task was to be given first */
};
#endif
