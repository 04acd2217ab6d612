/* From an order to a running program: the task, its supervisor, and commands that join a task. Tasks and commands drop
 * root in the same function, so that a command inside a job has exactly the job's rights. */
#include "../task.h"
#include "warden.h"

enum { LOCK, READY, LAUNCH, INPUT };             /* descriptors of a start */
enum { EXEC_INPUT, EXEC_OUTPUT, EXEC_LAUNCH };    /* of a command */
enum { CAPABILITY_KILL = 5, SECURE_NOROOT = 3 };  /* of linux/capability.h and securebits.h: the bit and its lock */

static int error_fd = -1; /* in a task: to its supervisor */
static pid_t waits;       /* the parent of a command inside a task: the command dies with it */

/* Ends a task or a supervisor in which a step failed; a task reports the step to its supervisor. */
_Noreturn void broken(const char *what) {
    struct exec_error e = {.err = errno ? errno : EPERM};
    snprintf(e.what, sizeof e.what, "%s", what);
    if (error_fd >= 0 && write(error_fd, &e, sizeof e) < 0) _exit(125);
    _exit(126);
}

static char **words(char **at, char *end, uint32_t count) {
    char **list = calloc((size_t)count + 1, sizeof *list);
    if (!list) refuse(ENOMEM, "words of the launch");
    for (uint32_t i = 0; i < count; i++) {
        char *stop = *at < end ? memchr(*at, 0, (size_t)(end - *at)) : NULL;
        if (!stop) refuse(EINVAL, "the launch is cut short");
        list[i] = *at;
        *at = stop + 1;
    }
    return list;
}

void launch_read(int fd, struct launch *launch) {
    uint32_t counts[2];
    char *text = malloc(LAUNCH_BYTES);
    ssize_t n = text ? pread(fd, text, LAUNCH_BYTES, 0) : -1;
    if (n < (ssize_t)sizeof counts || n == LAUNCH_BYTES) refuse(EINVAL, "the launch has no size between 8 and %d", LAUNCH_BYTES);
    memcpy(counts, text, sizeof counts);
    if (counts[0] < 1 || counts[0] > LAUNCH_BYTES || counts[1] > LAUNCH_BYTES) refuse(EINVAL, "the launch has no command");
    char *at = text + sizeof counts;
    launch->argv = words(&at, text + n, counts[0]);
    launch->env = words(&at, text + n, counts[1]);
}

/* If root itself may not raise a limit, as in containers, sets the highest value that is allowed. */
static void limit(int what, rlim_t value) {
    struct rlimit both = {value, value}, had;
    if (setrlimit(what, &both) == 0) return;
    if (getrlimit(what, &had) < 0) broken("rlimits");
    both.rlim_cur = both.rlim_max = had.rlim_max < value ? had.rlim_max : value;
    if (setrlimit(what, &both) < 0) broken("rlimits");
}

/* Turns a forked child into a task, or into a command inside one. A task starts when its supervisor writes to `go`. */
static _Noreturn void become(const struct account *who, const struct launch *launch, int in, int out, int go, int view) {
    extern char **environ;
    struct stat seen;
    sigset_t none;
    char byte;
    if (go >= 0 && read(go, &byte, 1) != 1) _exit(126); /* no supervisor: do not start */
    if (setsid() < 0) broken("setsid");
    for (int s = 1; s < NSIG; s++) signal(s, SIG_DFL);
    if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0) broken("standard streams");
    if (order.flags & FLAG_TTY) {
        if (fstat(1, &seen) < 0 || major(seen.st_rdev) < 136 || major(seen.st_rdev) > 143) broken("terminal");
        if (ioctl(1, TIOCSCTTY, 0) < 0 || fchown(1, who->uid, (gid_t)-1) < 0) broken("terminal");
    }
    syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL); /* kernels without keys have nothing to share */
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_NOFILE, 65536);
    limit(RLIMIT_MEMLOCK, RLIM_INFINITY);
    int score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (score < 0 || write(score, "0", 1) != 1) broken("oom_score_adj");
    close(score);
    if (view >= 0 && setns(view, CLONE_NEWNS) < 0) broken("the task's view of files");
    if (view < 0) folders_see(who, order.cwd);
    account_become(who);
    if (view >= 0 && (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != waits)) _exit(126);
    umask(order.umask & 0777);
    if (chdir(order.cwd) < 0) {
        struct exec_error e = {.err = errno, .folder = true};
        if (write(error_fd, &e, sizeof e) < 0) _exit(125);
        _exit(126);
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) broken("no_new_privs");
    if (syscall(SYS_close_range, 3, ~0U, 4 /* close on exec */) < 0) broken("close_range");
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    environ = launch->env;
    execvp(launch->argv[0], launch->argv);
    struct exec_error e = {.err = errno};
    if (write(error_fd, &e, sizeof e) < 0) _exit(125);
    _exit(e.err == ENOENT ? 127 : 126);
}

/* Leaves the supervisor only the server's account and the right to signal. */
static void only_kill(void) {
    struct { uint32_t version, pid; } head = {0x20080522, 0};
    struct { uint32_t effective, permitted, inheritable; } caps[2] = {{0}};
    caps[0].effective = caps[0].permitted = caps[0].inheritable = 1u << CAPABILITY_KILL;
    for (int c = 0; c < 64; c++)
        if (c != CAPABILITY_KILL) prctl(PR_CAPBSET_DROP, c, 0, 0, 0); /* fails for those unknown to the kernel */
    if (prctl(PR_SET_SECUREBITS, SECURE_NOROOT, 0, 0, 0) < 0 || prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0 ||
        setgroups(0, NULL) < 0 || setresgid(conf.server_gid, conf.server_gid, conf.server_gid) < 0 ||
        setresuid(conf.server, conf.server, conf.server) < 0 || syscall(SYS_capset, &head, caps) < 0 ||
        prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAPABILITY_KILL, 0, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        broken("the supervisor's account");
}

static _Noreturn void supervise(const struct account *who, const struct launch *launch) {
    int out[2] = {-1, -1}, failed[2], go[2], slave = -1, unlock = 0;
    char text[12][4200], *argv[18];
    setsid();
    if (pipe2(failed, O_CLOEXEC) < 0 || pipe2(go, O_CLOEXEC) < 0) broken("pipes");
    if (order.flags & FLAG_TTY) {
        struct winsize size = {.ws_row = 24, .ws_col = 80};
        out[0] = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
        if (out[0] < 0 || ioctl(out[0], TIOCSPTLCK, &unlock) < 0) broken("terminal");
        slave = ioctl(out[0], TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
        if (slave < 0 || ioctl(slave, TIOCSWINSZ, &size) < 0) broken("terminal");
        out[1] = slave;
    } else if (pipe2(out, O_CLOEXEC) < 0) {
        broken("pipes");
    }
    int in = slave >= 0 && (order.flags & FLAG_STDIN) ? slave : given[INPUT];
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0) broken("subreaper");
    error_fd = failed[1];
    pid_t pid = group_fork(false);
    if (pid < 0) broken("fork");
    if (pid == 0) {
        close(go[1]);
        become(who, launch, in, out[1], go[0], -1);
    }
    int kept[] = {given[LOCK], given[READY], out[0], failed[0], go[1], slave};
    int n = 0;
    only_kill();
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) fcntl(kept[i], F_SETFD, 0);
    snprintf(text[n++], sizeof *text, "%s", conf.supervisor);
    snprintf(text[n++], sizeof *text, "--dir=%s", order.dir);
    snprintf(text[n++], sizeof *text, "--cwd=%s", order.cwd);
    snprintf(text[n++], sizeof *text, "--lock-fd=%d", given[LOCK]);
    snprintf(text[n++], sizeof *text, "--ready-fd=%d", given[READY]);
    snprintf(text[n++], sizeof *text, "--child=%d,%d,%d,%d,%d", (int)pid, out[0], failed[0], go[1], slave);
    snprintf(text[n++], sizeof *text, "--attempt=%s/%s/%u", order.workload, order.task, order.number);
    snprintf(text[n++], sizeof *text, "--grace-ms=%llu", (unsigned long long)order.grace_ms);
    snprintf(text[n++], sizeof *text, "--log-max=%llu", (unsigned long long)order.log_max);
    snprintf(text[n++], sizeof *text, "--log-keep=%u", order.log_keep);
    for (int i = 0; i < n; i++) argv[i] = text[i];
    if (group_file(text[n] + sprintf(text[n], "--kill="), "cgroup.kill")) argv[n] = text[n], n++;
    if (group_file(text[n] + sprintf(text[n], "--refused="), "pids.events")) argv[n] = text[n], n++;
    if (order.flags & FLAG_TTY) argv[n++] = "--tty";
    if (order.flags & FLAG_STDIN) argv[n++] = "--stdin";
    argv[n++] = "--";
    argv[n++] = launch->argv[0];
    argv[n] = NULL;
    execve(conf.supervisor, argv, (char *[]){NULL});
    int length = snprintf(text[0], sizeof *text, "error %s: %s\n", conf.supervisor, strerror(errno));
    if (write(given[READY], text[0], (size_t)length) < 0) _exit(125);
    _exit(126);
}

_Noreturn void start(void) {
    struct account who;
    struct launch launch;
    account_find(&who);
    launch_read(given[LAUNCH], &launch);
    folders_make(&who);
    group_make();
    pid_t pid = group_fork(true);
    if (pid < 0) refuse(errno, "fork");
    if (pid == 0) supervise(&who, &launch);
    note(6, "start uid=%u gid=%u groups=%d attempt=%s/%s/%u devices=%u memory=%llu cwd=%s", (unsigned)who.uid,
         (unsigned)who.gid, who.count, order.workload, order.task, order.number, order.devices,
         (unsigned long long)order.memory, order.cwd);
    answer(&(struct answer){.pid = pid}, (int)syscall(SYS_pidfd_open, pid, 0));
    exit(0);
}

/* Opens the task's mount namespace: that of the oldest member of the group whose namespace is not ours. */
static int view_of_task(void) {
    pid_t *pids;
    char path[64];
    struct stat ours, theirs;
    uint64_t oldest = UINT64_MAX;
    int view = -1, n = group_members(&pids);
    if (stat("/proc/self/ns/mnt", &ours) < 0) refuse(errno, "/proc/self/ns/mnt");
    for (int i = 0; i < n; i++) {
        uint64_t began = process_start(pids[i]);
        if (!began || began >= oldest) continue;
        snprintf(path, sizeof path, "/proc/%d/ns/mnt", (int)pids[i]);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &theirs) < 0 || theirs.st_ino == ours.st_ino) {
            if (fd >= 0) close(fd);
            continue;
        }
        if (view >= 0) close(view);
        view = fd;
        oldest = began;
    }
    free(pids);
    if (view < 0) refuse(ESRCH, "nothing of the attempt runs");
    return view;
}

/* Runs a command inside a task. This process waits for it, and kills it when the client closes the connection. */
_Noreturn void execute(void) {
    struct account who;
    struct launch launch;
    struct exec_error e;
    int failed[2], status = 0;
    account_find(&who);
    launch_read(given[EXEC_LAUNCH], &launch);
    if (!group_exists()) refuse(ESRCH, "nothing of the attempt runs");
    int view = view_of_task();
    if (pipe2(failed, O_CLOEXEC) < 0) refuse(errno, "pipe");
    waits = getpid();
    error_fd = failed[1];
    pid_t pid = group_fork(false);
    if (pid < 0) refuse(errno, "fork");
    if (pid == 0) {
        become(&who, &launch, given[EXEC_INPUT], given[EXEC_OUTPUT], -1, view);
    }
    close(failed[1]);
    for (int i = 0; i < DESCRIPTORS; i++) close(given[i]);
    if (read(failed[0], &e, sizeof e) == (ssize_t)sizeof e) {
        if (e.folder) refuse(e.err, "cwd %s", order.cwd);
        refuse(e.err, "%s", *e.what ? e.what : launch.argv[0]);
    }
    note(6, "exec uid=%u attempt=%s/%s/%u", (unsigned)who.uid, order.workload, order.task, order.number);
    int ended = (int)syscall(SYS_pidfd_open, pid, 0);
    answer(&(struct answer){.pid = pid}, ended);
    alarm(0);
    struct pollfd both[2] = {{.fd = ended, .events = POLLIN}, {.fd = connection, .events = POLLIN}};
    while (poll(both, 2, -1) < 0 && errno == EINTR) continue;
    if (!both[0].revents) kill(-pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    answer(&(struct answer){.pid = pid, .status = (uint32_t)status}, -1);
    exit(0);
}
