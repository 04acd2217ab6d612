/* The account that a task runs as: looked up by uid, checked against the configuration, and switched to for good. */
#include "warden.h"

/* Refuses accounts that may not run anything here. A name service that hangs blocks only this child. */
void account_find(struct account *who) {
    uid_t uid = order.uid;
    if (uid < conf.min_uid || uid == 65534 || uid == (uid_t)-1)
        refuse(EPERM, "uid %u is below min-uid %u", (unsigned)uid, (unsigned)conf.min_uid);
    errno = 0;
    struct passwd *found = getpwuid(uid);
    if (!found) refuse(ESRCH, "uid %u has no name: owner-gone", (unsigned)uid);
    if (strcmp(found->pw_name, order.name) != 0)
        refuse(ESRCH, "uid %u is %s now, it was %s: owner-gone", (unsigned)uid, found->pw_name, order.name);
    for (size_t i = 0; i < conf.denied; i++)
        if (conf.deny[i] == uid) refuse(EPERM, "user %s is in deny-users", found->pw_name);
    const char *shell = strrchr(found->pw_shell, '/');
    if (!*found->pw_shell || (shell && (!strcmp(shell, "/nologin") || !strcmp(shell, "/false"))))
        refuse(EPERM, "user %s has no login shell", found->pw_name);
    *who = (struct account){.uid = uid, .gid = found->pw_gid, .count = GROUPS};
    snprintf(who->name, sizeof who->name, "%s", found->pw_name);
    if (who->gid == 0) refuse(EPERM, "user %s has group 0", who->name);
    if (getgrouplist(who->name, who->gid, who->groups, &who->count) < 0)
        refuse(E2BIG, "user %s is in more than %d groups", who->name, GROUPS);
    bool member = !conf.only_group;
    for (int i = 0; i < who->count; i++) {
        member |= who->groups[i] == conf.allow_group;
        if (who->groups[i] == 0) refuse(EPERM, "user %s is in group 0", who->name);
    }
    if (!member) refuse(EPERM, "user %s is not in allow-group", who->name);
    struct spwd *shadow = getspnam(who->name);
    if (shadow && shadow->sp_expire > 0 && time(NULL) / 86400 >= shadow->sp_expire)
        refuse(EACCES, "the account of user %s has expired", who->name);
}

/* Makes root's file accesses count as the user's until account_return(). */
void account_visit(const struct account *who) {
    if (setgroups((size_t)who->count, who->groups) < 0 || setegid(who->gid) < 0 || seteuid(who->uid) < 0) broken("a visit as the user");
}

void account_return(void) {
    if (seteuid(0) < 0 || setegid(0) < 0 || setgroups(0, NULL) < 0) broken("root again");
}

/* Switches to the account for good, and ends the process if a way back to root is left. */
void account_become(const struct account *who) {
    uid_t uid[3];
    gid_t gid[3];
    struct { uint32_t version, pid; } head = {0x20080522, 0};
    struct { uint32_t effective, permitted, inheritable; } caps[2] = {{1, 1, 1}, {1, 1, 1}};
    if (setgroups((size_t)who->count, who->groups) < 0 || setresgid(who->gid, who->gid, who->gid) < 0 ||
        setresuid(who->uid, who->uid, who->uid) < 0)
        broken("the user's ids");
    if (getresuid(&uid[0], &uid[1], &uid[2]) < 0 || getresgid(&gid[0], &gid[1], &gid[2]) < 0) broken("the user's ids");
    for (int i = 0; i < 3; i++)
        if (uid[i] != who->uid || gid[i] != who->gid) broken("the user's ids");
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    if (syscall(SYS_capget, &head, caps) < 0) broken("capabilities");
    if (caps[0].effective | caps[1].effective | caps[0].permitted | caps[1].permitted) broken("capabilities left");
    if (setuid(0) == 0 || seteuid(0) == 0) broken("a way back to root");
}
