/* Control groups of versions 1 and 2, also mounted together: <group>/user-<uid>/<attempt> in every hierarchy of version
 * 2 or with a controller in use. Version 2, if mounted, kills a group and says whether it is populated; limits are set
 * where the controllers are. */
#include "warden.h"

enum { MEMORY = 1, CPU = 2, PIDS = 4, CORES = 8, DEVICES_ = 16, FREEZER = 32, TREES = 8, PATH = 1024 };
static const char *const controllers[] = {"memory", "cpu", "pids", "cpuset", "devices", "freezer"};

static struct tree {
    char path[512];
    bool v2;
    int has;
} trees[TREES];
static int tree_count;

static bool has_word(const char *text, const char *word) {
    size_t n = strlen(word);
    for (const char *at = text; (at = strstr(at, word)); at += n)
        if ((at == text || strchr(", \n", at[-1])) && (!at[n] || strchr(", \n", at[n]))) return true;
    return false;
}

bool get(const char *folder, const char *file, char *text, size_t room) {
    char path[PATH];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, room - 1);
    if (fd >= 0) close(fd);
    text[n > 0 ? n : 0] = 0;
    return n >= 0;
}

bool put(const char *folder, const char *file, const char *format, ...) {
    char path[PATH], text[8192]; /* the longest is a list of cores */
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(path, sizeof path, "%s/%s", folder, file);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool done = fd >= 0 && write(fd, text, (size_t)n) == n;
    int err = errno;
    if (fd >= 0) close(fd);
    errno = err;
    return done;
}

static void path_of(char *path, const struct tree *tree, const char *format, ...) {
    va_list args;
    size_t n = (size_t)snprintf(path, PATH, "%s%s", tree->path, conf.group);
    va_start(args, format);
    vsnprintf(path + n, PATH - n, format, args);
    va_end(args);
}

static void attempt_path(char *path, const struct tree *tree) {
    path_of(path, tree, "/user-%u/%s.%s.%u", order.uid, order.workload, order.task, order.number);
}

static int64_t number_of(const char *folder, const char *file, const char *key) {
    char text[4096];
    if (!get(folder, file, text, sizeof text)) return -1;
    const char *at = key ? strstr(text, key) : text;
    return at ? strtoll(at + (key ? strlen(key) : 0), NULL, 10) : -1;
}

static void delegate(const struct tree *tree, const char *folder) {
    for (size_t i = 0; tree->v2 && i < 4; i++)
        if (tree->has & (1 << i)) put(folder, "cgroup.subtree_control", "+%s", controllers[i]);
}

static bool make(const char *folder) {
    if (mkdir(folder, 0755) == 0 || errno == EEXIST) return true;
    for (char *part = strchr(folder + 1, '/'), copy[PATH]; part; part = strchr(part + 1, '/')) {
        snprintf(copy, sizeof copy, "%.*s", (int)(part - folder), folder);
        mkdir(copy, 0755);
    }
    return mkdir(folder, 0755) == 0 || errno == EEXIST;
}

void groups_open(void) {
    char line[4096], text[PATH], pid[32];
    FILE *mounts = fopen("/proc/self/mountinfo", "re");
    while (mounts && fgets(line, sizeof line, mounts) && tree_count < TREES) {
        char place[512], type[64], options[512];
        const char *rest = strstr(line, " - ");
        if (!rest || sscanf(line, "%*s %*s %*s %*s %511s", place) != 1) continue;
        if (sscanf(rest, " - %63s %*s %511s", type, options) != 2) continue;
        struct tree tree = {.v2 = !strcmp(type, "cgroup2")};
        if (!tree.v2 && strcmp(type, "cgroup") != 0) continue;
        snprintf(tree.path, sizeof tree.path, "%s", place);
        if (tree.v2 && !get(place, "cgroup.controllers", options, sizeof options)) continue;
        for (size_t i = 0; i < sizeof controllers / sizeof *controllers; i++)
            if (has_word(options, controllers[i])) tree.has |= 1 << i;
        if (!conf.own_cores) tree.has &= ~CORES;
        if (tree.v2 || tree.has) trees[tree_count++] = tree;
    }
    if (mounts) fclose(mounts);
    for (struct tree *tree = trees; tree < trees + tree_count; tree++) {
        path_of(text, tree, "/supervisors");
        if (!make(text)) note(3, "%s cannot be made: %s", text, strerror(errno)), exit(2);
        if (tree->has & CORES) cores_inherit(tree->path, text);
        if (!tree->v2) continue;
        path_of(text, tree, "/hold"); /* a group with members cannot limit the groups below it */
        make(text);
        for (int i = 0; i < 64 && (path_of(line, tree, ""), get(line, "cgroup.procs", pid, sizeof pid)) && *pid; i++)
            if (!put(text, "cgroup.procs", "%ld", strtol(pid, NULL, 10))) break;
        path_of(text, tree, "");
        delegate(tree, text);
    }
    if (!tree_count) note(3, "no control groups are mounted: see `pliant doctor`"), exit(2);
}

bool group_exists(void) {
    char path[PATH];
    attempt_path(path, trees);
    return access(path, F_OK) == 0;
}

/* Makes the attempt's group in all hierarchies, or in none. */
void group_make(void) {
    char path[PATH];
    for (struct tree *tree = trees; tree < trees + tree_count; tree++) {
        path_of(path, tree, "/user-%u", order.uid);
        if (!make(path)) refuse(errno, "%s cannot be made", path);
        delegate(tree, path);
        attempt_path(path, tree);
        if (mkdir(path, 0755) < 0) {
            if (errno == EEXIST && tree == trees) refuse(EEXIST, "the attempt has a group already");
            if (errno != EEXIST) refuse(errno, "%s cannot be made", path);
        }
        undo = group_remove;
        if (tree->has & CORES) cores_inherit(tree->path, path);
        if (tree->v2) {
            strcat(path, "/cgroup.kill"); /* lets the server kill the job while no warden answers */
            int fd = open(path, O_WRONLY | O_CLOEXEC);
            if (fd >= 0 && (fchown(fd, (uid_t)-1, conf.server_gid) < 0 || fchmod(fd, 0220) < 0)) refuse(errno, "%s", path);
            close(fd);
        }
    }
    group_limit();
}

static uint64_t between(uint64_t least, uint64_t value, uint64_t most) {
    return value < least ? least : value > most ? most : value;
}

static bool weigh(const struct tree *tree, const char *path) {
    uint64_t cpu = order.cpu ? order.cpu : 1000;
    return tree->v2 ? put(path, "cpu.weight", "%" PRIu64, between(1, cpu / 10, 10000))
                    : put(path, "cpu.shares", "%" PRIu64, between(2, cpu * 1024 / 1000, 262144));
}

/* Limits memory, CPU, processes and devices, of a new group or of one that is resized. Fails closed. */
void group_limit(void) {
    struct device list[DEVICES * 2 + 64];
    size_t count = wall_devices(list, sizeof list / sizeof *list);
    int done = 0;
    bool v2_wall = false;
    char path[PATH], root[PATH];
    for (struct tree *tree = trees; tree < trees + tree_count; tree++) {
        attempt_path(path, tree);
        bool ok = true;
        if (tree->v2 && wall_v2(path, list, count)) v2_wall = true, done |= DEVICES_;
        if (tree->has & MEMORY) {
            int64_t most = order.memory ? (int64_t)order.memory : INT64_MAX / 4096 * 4096;
            if (tree->v2) {
                ok = order.memory ? put(path, "memory.max", "%" PRId64, most) : put(path, "memory.max", "max");
                put(path, "memory.swap.max", order.memory ? "0" : "max");
                put(path, "memory.oom.group", "1");
            } else {
                /* memsw may never be below the memory limit: it is raised first and lowered last */
                put(path, "memory.memsw.limit_in_bytes", "%" PRId64, INT64_MAX / 4096 * 4096);
                ok = put(path, "memory.limit_in_bytes", "%" PRId64, most);
                if (ok) put(path, "memory.memsw.limit_in_bytes", "%" PRId64, most);
            }
            done |= MEMORY;
        }
        if (tree->has & CPU) {
            ok = ok && weigh(tree, path);
            done |= CPU;
        }
        if (tree->has & CORES) {
            path_of(root, tree, "");
            cores_share(root, path);
            done |= CORES;
        }
        if (tree->has & PIDS) {
            ok = ok && put(path, "pids.max", "%" PRIu64, order.pids ? order.pids : 1024);
            done |= PIDS;
        }
        if (!ok) refuse(errno, "a limit of %s cannot be set", path);
    }
    for (struct tree *tree = trees; !v2_wall && tree < trees + tree_count; tree++) {
        if (!(tree->has & DEVICES_) || tree->v2) continue;
        attempt_path(path, tree);
        bool ok = put(path, "devices.deny", "a");
        for (size_t i = 0; ok && i < count; i++)
            ok = list[i].minor == UINT32_MAX ? put(path, "devices.allow", "c %u:* rw", list[i].major)
                                             : put(path, "devices.allow", "c %u:%u rw", list[i].major, list[i].minor);
        if (ok) done |= DEVICES_;
    }
    if (!(done & DEVICES_)) refuse(ENOTSUP, "this machine cannot keep a job from devices");
    if (order.memory && !(done & MEMORY)) refuse(ENOTSUP, "this machine cannot limit memory");
    if (conf.own_cores && !(done & CORES)) refuse(ENOTSUP, "this machine cannot give jobs cores of their own");
    if (!(done & PIDS)) refuse(ENOTSUP, "this machine cannot limit the number of processes");
}

static void place(char *path, const struct tree *tree, bool supervisor) {
    if (supervisor) path_of(path, tree, "/supervisors");
    else attempt_path(path, tree);
}

/* Forks a task into the group of its attempt, a supervisor into `supervisors`. Moving a process takes the kernel up to
 * 20 ms; creating it in its group (version 2) or moving a single thread (version 1) avoids this. */
pid_t group_fork(bool supervisor) {
    char path[PATH];
    bool inside = false;
    pid_t pid = -1;
    for (struct tree *tree = trees; tree < trees + tree_count; tree++) {
        if (!tree->v2) continue;
        place(path, tree, supervisor);
        struct clone_args how = {.flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD};
        int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        how.cgroup = (uint64_t)fd;
        inside = fd >= 0 && (pid = (pid_t)syscall(SYS_clone3, &how, sizeof how)) >= 0;
        close(fd);
        break;
    }
    if (!inside) pid = fork(); /* Linux before 5.7 */
    for (struct tree *tree = trees; pid == 0 && tree < trees + tree_count; tree++) {
        place(path, tree, supervisor);
        if (!(tree->v2 && inside) && !put(path, tree->v2 ? "cgroup.procs" : "tasks", "0")) broken("control groups");
    }
    return pid;
}

int group_members(pid_t **pids) {
    char path[PATH];
    int n = 0, room = 0;
    pid_t *list = NULL;
    attempt_path(path, trees);
    strcat(path, "/cgroup.procs");
    FILE *file = fopen(path, "re");
    for (int pid; file && fscanf(file, "%d", &pid) == 1;) {
        if (n == room) list = realloc(list, (size_t)(room = room ? 2 * room : 256) * sizeof *list);
        if (!list) abort();
        list[n++] = pid;
    }
    if (file) fclose(file);
    *pids = list;
    return n;
}

/* Start time in ticks after boot; 0 if the process is dead. Pid and start time identify a process. */
uint64_t process_start(pid_t pid) {
    char text[1024], path[32];
    snprintf(path, sizeof path, "/proc/%d", (int)pid);
    const char *end = get(path, "stat", text, sizeof text) ? strrchr(text, ')') : NULL;
    if (!end || end[2] == 'Z' || end[2] == 'X') return 0;
    for (int word = 0; end && word < 20; word++) end = strchr(end + 1, ' '); /* field 22 */
    return end ? strtoull(end, NULL, 10) : 0;
}

bool group_populated(void) {
    char path[PATH];
    for (struct tree *tree = trees; tree < trees + tree_count; tree++) {
        attempt_path(path, tree);
        if (tree->v2) return number_of(path, "cgroup.events", "populated ") == 1;
    }
    pid_t *pids;
    bool alive = false;
    for (int n = group_members(&pids); n-- > 0;) alive |= process_start(pids[n]) != 0;
    free(pids);
    return alive;
}

/* Signals through pidfds. Lists the members again after opening them, so that a reused pid is spared. */
void group_signal(int number) {
    pid_t *pids, *again;
    int n = group_members(&pids), fd[n + 1];
    for (int i = 0; i < n; i++) fd[i] = (int)syscall(SYS_pidfd_open, pids[i], 0);
    int m = group_members(&again);
    for (int i = 0; i < n; i++) {
        bool still = false;
        for (int j = 0; j < m; j++) still |= again[j] == pids[i];
        if (fd[i] < 0) continue;
        if (still) syscall(SYS_pidfd_send_signal, fd[i], number, NULL, 0);
        if (still && number == SIGTERM) syscall(SYS_pidfd_send_signal, fd[i], SIGCONT, NULL, 0);
        close(fd[i]);
    }
    free(pids);
    free(again);
}

static void freeze(const char *state) {
    char path[PATH];
    for (struct tree *tree = trees; tree < trees + tree_count; tree++) {
        attempt_path(path, tree);
        if (!tree->v2 && (tree->has & FREEZER)) put(path, "freezer.state", "%s", state);
    }
}

/* Writes the path of the attempt's file `name` to `path`, of PATH bytes. False if no hierarchy has it. */
bool group_file(char *path, const char *name) {
    for (struct tree *tree = trees; tree < trees + tree_count; tree++) {
        attempt_path(path, tree);
        strcat(strcat(path, "/"), name);
        if (access(path, F_OK) == 0) return true;
    }
    return false;
}

/* Kills until the group is empty. Waits for a process that hangs in the kernel as long as an order may take. */
void group_kill(void) {
    char path[PATH];
    for (int round = 0; group_populated(); round++) {
        bool killed = false;
        for (struct tree *tree = trees; tree < trees + tree_count && !killed; tree++) {
            attempt_path(path, tree);
            killed = tree->v2 && put(path, "cgroup.kill", "1");
        }
        if (!killed) {
            freeze("FROZEN"); /* so that no process forks meanwhile */
            group_signal(SIGKILL);
            freeze("THAWED");
        }
        struct timespec pause = {0, round < 50 ? 2000000 : 50000000};
        nanosleep(&pause, NULL);
    }
}

void group_remove(void) {
    char path[PATH];
    for (int i = tree_count; i-- > 0;) { /* the first one marks that the attempt exists: it is removed last */
        attempt_path(path, &trees[i]);
        for (int tries = 0; rmdir(path) < 0 && errno == EBUSY && tries < 1000; tries++) {
            nanosleep(&(struct timespec){0, 5000000}, NULL); /* dead processes leave it a moment later */
            group_kill(); /* a process whose starter was killed may have joined only now */
        }
        path_of(path, &trees[i], "/user-%u", order.uid);
        rmdir(path); /* fails while other attempts are there */
        path_of(path, &trees[i], "");
        if (trees[i].has & CORES) cores_share(path, NULL);
    }
}

static void facts_of(struct answer *said) {
    char path[PATH];
    for (struct tree *tree = trees; tree < trees + tree_count; tree++) {
        attempt_path(path, tree);
        if (tree->has & PIDS) {
            int64_t unforked = number_of(path, "pids.events", "max "), most = number_of(path, "pids.max", NULL);
            said->unforked = unforked > 0 ? (uint64_t)unforked : 0;
            said->processes = most > 0 ? (uint64_t)most : 0;
        }
        if (!(tree->has & MEMORY)) continue;
        int64_t oom = tree->v2 ? number_of(path, "memory.events", "oom_kill ")
                               : number_of(path, "memory.oom_control", "\noom_kill ");
        int64_t peak = number_of(path, tree->v2 ? "memory.peak" : "memory.max_usage_in_bytes", NULL);
        int64_t limit = number_of(path, tree->v2 ? "memory.max" : "memory.limit_in_bytes", NULL);
        said->oom = oom > 0 ? (uint64_t)oom : 0;
        said->peak = peak > 0 ? (uint64_t)peak : 0;
        said->limit = limit > 0 && limit < INT64_MAX / 2 ? (uint64_t)limit : 0;
    }
}

void group_facts(struct answer *said) {
    said->populated = group_populated();
    facts_of(said);
}

/* A line for each group: uid attempt populated oom peak limit unforked processes. */
void group_list(int out) {
    char path[PATH];
    path_of(path, trees, "");
    DIR *users = opendir(path);
    for (struct dirent *user; users && (user = readdir(users));) {
        if (sscanf(user->d_name, "user-%u", &order.uid) != 1) continue;
        path_of(path, trees, "/%s", user->d_name);
        DIR *attempts = opendir(path);
        for (struct dirent *one; attempts && (one = readdir(attempts));) {
            struct answer said = {0};
            if (sscanf(one->d_name, "%63[^.].%95[^.].%u", order.workload, order.task, &order.number) != 3) continue;
            group_facts(&said);
            dprintf(out, "%u %s/%s/%u %u %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", order.uid,
                    order.workload, order.task, order.number, said.populated, said.oom, said.peak, said.limit,
                    said.unforked, said.processes);
        }
        if (attempts) closedir(attempts);
    }
    if (users) closedir(users);
}
