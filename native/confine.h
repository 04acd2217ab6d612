/* Gives a task its own view of the file system, in which one folder is read-only: that with the task's share of a GPU.
 * Root drops the two capabilities that could make the folder writable again (to mount, to enter other processes); any
 * other user gets a user namespace that maps only this user, where the existing mounts are locked. */
#ifndef PLIANT_CONFINE_H
#define PLIANT_CONFINE_H
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { CONFINE_SYS_PTRACE = 19, CONFINE_SYS_ADMIN = 21 }; /* of linux/capability.h */

static int confine_note(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return errno;
    int err = write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : errno;
    close(fd);
    return err;
}

/* The flags for a read-only remount, with those that a user namespace must keep. */
static unsigned long confine_flags(const char *folder) {
    static const unsigned long pairs[][2] = {{ST_NOSUID, MS_NOSUID},   {ST_NODEV, MS_NODEV},
                                             {ST_NOEXEC, MS_NOEXEC},   {ST_NOATIME, MS_NOATIME},
                                             {ST_NODIRATIME, MS_NODIRATIME}, {ST_RELATIME, MS_RELATIME}};
    struct statvfs fs;
    unsigned long flags = MS_REMOUNT | MS_BIND | MS_RDONLY;
    if (statvfs(folder, &fs) != 0) return flags;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (fs.f_flag & pairs[i][0]) flags |= pairs[i][1];
    return flags;
}

/* Returns 0, or the errno of the step that `what` names. The caller must be single-threaded. */
static int confine(const char *folder, const char **what) {
    unsigned uid = geteuid(), gid = getegid();
    char map[64];
    int err = 0;
    *what = "a mount namespace";
    if (uid != 0 || unshare(CLONE_NEWNS) != 0) {
        *what = "a user namespace";
        if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return errno;
        confine_note("/proc/self/setgroups", "deny"); /* older kernels do not know it */
        snprintf(map, sizeof map, "%u %u 1", uid, uid);
        if ((err = confine_note("/proc/self/uid_map", map)) != 0) return err;
        snprintf(map, sizeof map, "%u %u 1", gid, gid);
        if ((err = confine_note("/proc/self/gid_map", map)) != 0) return err;
    }
    *what = "a read-only mount";
    if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) != 0 || mount(folder, folder, NULL, MS_BIND, NULL) != 0 ||
        mount(NULL, folder, NULL, confine_flags(folder), NULL) != 0)
        return errno;
    *what = "rights to give up";
    if (uid == 0 && (prctl(PR_CAPBSET_DROP, CONFINE_SYS_ADMIN, 0, 0, 0) != 0 ||
                     prctl(PR_CAPBSET_DROP, CONFINE_SYS_PTRACE, 0, 0, 0) != 0))
        return errno;
    return 0;
}

/* pliant-supervise --confine DIR [--] [COMMAND...]: confines a command that joins a running task. Without COMMAND it
 * only tests whether that is possible here. */
static int confine_command(char **argv) {
    const char *folder = argv[2], *what;
    char **command = argv + 3;
    int err = folder ? confine(folder, &what) : EINVAL;
    if (err) {
        if (!folder) what = "a folder";
        printf("%s: %s\n", what, strerror(err));
        return 125;
    }
    if (*command && strcmp(*command, "--") == 0) command++;
    if (!*command) {
        if (access(folder, W_OK) == 0 || errno != EROFS) return printf("%s stays writable\n", folder), 125;
        return 0;
    }
    execvp(*command, command);
    err = errno;
    printf("%s: %s\n", *command, strerror(err));
    return err == ENOENT || err == ENOTDIR ? 127 : 126;
}
#endif
