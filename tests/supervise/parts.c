/* Parts of the supervisor by themselves, for what nobody can bring about from outside: a process number that was given
 * to another process in between, and the order in which the record reaches the disk. Prints what happened. */
#define _GNU_SOURCE
#include <stdio.h>
#include <unistd.h>

static int seen_fsync(int fd);
static int seen_renameat(int from_dir, const char *from, int to_dir, const char *to);

#define main supervise_main
#define fsync seen_fsync
#define renameat seen_renameat
#include "supervise.c"
#undef main
#undef fsync
#undef renameat

static int seen_fsync(int fd) {
    puts(fd == record_fd ? "fsync record" : fd == dir_fd ? "fsync folder" : "fsync another");
    return fsync(fd);
}

static int seen_renameat(int from_dir, const char *from, int to_dir, const char *to) {
    printf("rename %s %s\n", from, to);
    return renameat(from_dir, from, to_dir, to);
}

static int record(const char *folder) {
    static const char text[] = "{\"code\":0}\n";
    dir_fd = open(folder, O_RDONLY | O_DIRECTORY);
    return record_try(text, sizeof text - 1) ? 0 : 1;
}

/* SIGKILL for the process of that number, believed to have started so many ticks after its true start. */
static int kill_late(pid_t pid, unsigned long long ticks) {
    struct process p;
    if (!process_read(pid, &p)) return 1;
    p.start += ticks;
    process_signal(&p, SIGKILL);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "record")) return record(argv[2]);
    if (argc == 4 && !strcmp(argv[1], "kill")) return kill_late(atoi(argv[2]), strtoull(argv[3], NULL, 10));
    return 2;
}
