/* A workload's own folders, below <work>/<uid>, and the view of the file system that its tasks have. Everything below
 * <uid>/<workload> is the user's and accessed only as the user; root mounts through descriptors opened as the user. */
#include "warden.h"

enum { DEEP = 1000, ROUNDS = 1000, PLACE = 1200 };
static const char *const own[] = {"files", "tmp", "var-tmp"};

static void place(char *path, const char *root, const char *format, const char *name) {
    size_t n = (size_t)snprintf(path, PLACE, "%s/%u", root, order.uid);
    snprintf(path + n, PLACE - n, format, name);
}

/* Makes <root>/<uid>/<workload> for the user. The folders above are root's, so that no user can put a link there. */
static void user_folder(const struct account *who, const char *root) {
    char above[PLACE], path[PLACE];
    struct stat seen;
    int made = -1;
    place(above, root, "", "");
    place(path, root, "/%s", order.workload);
    for (int tries = 0; made < 0 && tries < 3; tries++) { /* the end of another workload may remove the one above */
        if ((mkdir(above, 0711) < 0 && errno != EEXIST) || lchown(above, 0, 0) < 0 || chmod(above, 0711) < 0) continue;
        made = mkdir(path, 0700) == 0 || errno == EEXIST ? 0 : -1;
    }
    if (made < 0 || lstat(path, &seen) < 0) refuse(errno, "%s", path);
    if (seen.st_uid == 0 && lchown(path, who->uid, who->gid) < 0) refuse(errno, "%s", path);
    if (seen.st_uid != 0 && seen.st_uid != who->uid) refuse(EPERM, "%s belongs to uid %u", path, (unsigned)seen.st_uid);
}

static void mine(const struct account *who, const char *path) {
    struct stat seen;
    if (mkdir(path, 0700) < 0 && errno != EEXIST) refuse(errno, "%s", path);
    if (lstat(path, &seen) < 0 || !S_ISDIR(seen.st_mode) || seen.st_uid != who->uid) refuse(EPERM, "%s is no folder of the user", path);
}

void folders_make(const struct account *who) {
    char path[PLACE], shared[NAME + 8], from[PLACE + 64];
    snprintf(shared, sizeof shared, "%s/shm", conf.runtime);
    user_folder(who, conf.work);
    user_folder(who, shared);
    account_visit(who);
    place(path, conf.work, "/%s", order.workload);
    size_t n = strlen(path);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        snprintf(path + n, sizeof path - n, "/%s", own[i]);
        mine(who, path);
    }
    snprintf(path + n, sizeof path - n, "/%s.%u", order.task, order.number);
    mine(who, path);
    n = strlen(path); /* links to the server's files for the attempt, where the attempt looks for them */
    static const char *const said[] = {"allocation.json", "token", "hostfile", "hostfile.hydra"};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        snprintf(path + n, sizeof path - n, "/%s", said[i]);
        snprintf(from, sizeof from, "%s/job/%s", conf.runtime, said[i]);
        if (symlink(from, path) < 0 && errno != EEXIST) refuse(errno, "%s", path);
    }
    account_return();
}

static int see(int from, const char *onto, unsigned long flags) {
    char source[32], target[32];
    int to = open(onto, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (from < 0 || to < 0) return -1;
    snprintf(source, sizeof source, "/proc/self/fd/%d", from);
    snprintf(target, sizeof target, "/proc/self/fd/%d", to);
    int done = mount(source, target, NULL, MS_BIND, NULL);
    close(to);
    if (done == 0) done = mount(NULL, onto, NULL, MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV | flags, NULL);
    return done;
}

/* Sets up the task's view of files, in the task while still root. A `cwd` below a private folder stays visible. */
void folders_see(const struct account *who, const char *cwd) {
    static const char *const onto[] = {"/tmp", "/var/tmp", "/dev/shm"};
    char path[PLACE], shared[NAME + 8];
    const struct account server = {.uid = conf.server, .gid = conf.server_gid};
    int fd[3], kept = -1;
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0) broken("a mount namespace");
    account_visit(&server);
    snprintf(path, sizeof path, "%s/pub", order.dir);
    int public_fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    account_return();
    account_visit(who);
    for (int i = 0; i < 2; i++) {
        place(path, conf.work, "/%s", order.workload);
        snprintf(path + strlen(path), sizeof path - strlen(path), "/%s", own[i + 1]);
        fd[i] = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    }
    snprintf(shared, sizeof shared, "%s/shm", conf.runtime);
    place(path, shared, "/%s", order.workload);
    fd[2] = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    for (int i = 0; i < 3; i++)
        if (!strncmp(cwd, onto[i], strlen(onto[i])) && cwd[strlen(onto[i])] == '/')
            kept = open(cwd, O_PATH | O_DIRECTORY | O_CLOEXEC);
    account_return();
    snprintf(path, sizeof path, "%s/job", conf.runtime);
    if (see(public_fd, path, MS_RDONLY | MS_NOEXEC) < 0) broken("the job's files");
    for (int i = 0; i < 3; i++)
        if (see(fd[i], onto[i], 0) < 0) broken("private folders");
    if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, "hidepid=2") < 0) broken("/proc");
    if (kept < 0) return;
    account_visit(who);
    char part[4096];
    for (const char *end = strchr(cwd + 1, '/'); end; end = strchr(end + 1, '/')) {
        snprintf(part, sizeof part, "%.*s", (int)(end - cwd), cwd);
        mkdir(part, 0700);
    }
    mkdir(cwd, 0700);
    int target = open(cwd, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    account_return();
    char source[32];
    snprintf(source, sizeof source, "/proc/self/fd/%d", kept);
    snprintf(part, sizeof part, "/proc/self/fd/%d", target);
    if (target >= 0 && mount(source, part, NULL, MS_BIND, NULL) < 0) broken("the working directory");
}

/* Empties a folder as the user, who may have made any tree. Follows no link. What is more than DEEP levels down moves to the
 * top, for the next round: each level costs a descriptor. Returns how many folders moved. */
static unsigned clear(int top, int parent, const char *name, unsigned depth) {
    static unsigned number;
    unsigned moved = 0;
    char path[32];
    int there = openat(parent, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (there < 0) return 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d", there);
    if (chmod(path, 0700) < 0) errno = 0; /* another account's: its contents stay */
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    close(there);
    if (fd < 0) return 0;
    if (depth > DEEP) {
        close(fd);
        snprintf(path, sizeof path, "deep-%u", number++);
        return renameat(parent, name, top, path) == 0;
    }
    DIR *all = fdopendir(fd);
    for (struct dirent *one; all && (one = readdir(all));) {
        if (!strcmp(one->d_name, ".") || !strcmp(one->d_name, "..")) continue;
        if (unlinkat(fd, one->d_name, 0) == 0) continue;
        moved += clear(depth ? top : fd, fd, one->d_name, depth + 1);
        unlinkat(fd, one->d_name, AT_REMOVEDIR);
    }
    if (all) closedir(all);
    return moved;
}

/* Deletes a workload's folders, acting as its uid: also if the account is gone or has another name now. */
void folders_discard(void) {
    char path[PLACE], shared[NAME + 8];
    struct stat seen;
    if (order.uid < conf.min_uid) refuse(EPERM, "uid %u is below min-uid %u", order.uid, (unsigned)conf.min_uid);
    snprintf(shared, sizeof shared, "%s/shm", conf.runtime);
    for (int i = 0; i < 2; i++) {
        place(path, i ? shared : conf.work, "/%s", order.workload);
        if (lstat(path, &seen) < 0 && errno == ENOENT) continue;
        account_visit(&(struct account){.uid = order.uid, .gid = seen.st_gid});
        for (int round = 0; round < ROUNDS && clear(AT_FDCWD, AT_FDCWD, path, 0) > 0; round++) continue;
        account_return();
        if (rmdir(path) < 0) refuse(errno, "%s", path);
        place(path, i ? shared : conf.work, "", "");
        rmdir(path); /* fails while other workloads are there */
    }
}
