"""Every defence of a shared machine, the source text that implements it, and the test that fails without it.

`docs/reference/security.md` shows the table; `test_defences.py` keeps it true.
"""

from typing import NamedTuple


class Defence(NamedTuple):
    attack: str
    taken_out: str
    file: str
    old: str
    new: str
    test: str  # file::name below tests/


ACCOUNT, CONFIG, CORES, FOLDERS = (
    f"native/warden/{name}.c" for name in ("account", "config", "cores", "folders")
)
GROUP, LAUNCH, MAIN, WALL = (f"native/warden/{name}.c" for name in ("group", "launch", "main", "wall"))
API, CLIENT = "src/pliant/api", "src/pliant/client"
WARDEN, WALLS, SHARED = "box/test_warden.py", "box/test_walls.py", "box/test_shared.py"

SOMEBODY_ELSE = "pose as another user"
PORT = "take the port or path of a dead server"
READ = "read or alter another's job, secrets, files"
ROOT = "become root or another user by a job"
FILES = "make the warden open, hang on or alter a file"
SQUAT = "squat names, loosen folders"
OUTLIVE = "outlive the job, fake its membership"
STARVE = "starve the box"
CARDS = "use a card that is not theirs"
TAKEN = "take over the server"

DEFENCES = (
    Defence(
        SOMEBODY_ELSE, "a name in the body that is not the caller's is refused",
        f"{API}/routes/workloads/submit.py",
        'if caller.box and body.get("submittedBy") not in (None, "", caller.person):', "if False:",
        f"{SHARED}::test_names_that_somebody_gives_himself_count_for_nothing",
    ),
    Defence(
        SOMEBODY_ELSE, "numbers without an account and those of the system are refused",
        f"{API}/identity/accounts.py",
        "if known is None or not (uid == 0 or self.serves(uid)):", "if known is None:",
        f"{SHARED}::test_an_account_of_the_system_may_do_nothing",
    ),
    Defence(
        SOMEBODY_ELSE, "the token of an attempt is good for its account alone",
        f"{API}/identity/auth.py",
        "if owner is not None and peer not in (0, owner.uid):", "if False:",
        f"{SHARED}::test_the_token_of_an_attempt_is_good_in_its_owners_hands_alone",
    ),
    Defence(
        SOMEBODY_ELSE, "a number that has another name now runs nothing of the old one",
        ACCOUNT, "if (strcmp(found->pw_name, order.name) != 0)", "if (false)",
        f"{WARDEN}::test_a_uid_that_has_another_name_now_inherits_nothing",
    ),
    Defence(
        SOMEBODY_ELSE, "groups that the login provider does not confirm count no more",
        f"{API}/identity/following.py",
        "if user.created_by.startswith(FROM) and age >= lasts and self._has(user):", "if False:",
        "openid/test_following.py::test_while_the_provider_is_away_rights_last_as_long_as_a_token",
    ),
    Defence(
        SOMEBODY_ELSE, "who is locked out at the login provider is logged out here",
        f"{API}/identity/following.py",
        "self._lose(user, over=True)", "pass",
        "openid/test_following.py::test_who_is_locked_out_there_loses_rights_and_sessions_here",
    ),
    Defence(
        SOMEBODY_ELSE, "a login provider names no account of root or of the system",
        f"{API}/identity/signin.py",
        "if known is None or not here.authority.accounts.serves(person.uid):", "if known is None:",
        "openid/test_login.py::test_claims_name_somebodys_mail_address_and_account",
    ),
    Defence(
        PORT, "the client asks the kernel whose the socket is",
        f"{CLIENT}/transport.py",
        "if owner not in (_ROOT, os.geteuid()) and not _of_the_server(owner):", "if False:",
        "box/test_thieves.py::test_a_socket_of_another_user_gets_no_byte",
    ),
    Defence(
        PORT, "only a file that root alone can change says who the server is",
        f"{CLIENT}/accounts.py", "if not _of_root(path):", "if False:",
        f"{SHARED}::test_only_a_file_of_roots_says_who_the_server_is",
    ),
    Defence(
        PORT, "a proof is asked for before a token is sent",
        f"{CLIENT}/transport.py",
        "if self.token and not self._secure and self.socket is None:", "if False:",
        "box/test_thieves.py::test_a_thief_of_the_port_gets_no_token",
    ),
    Defence(
        PORT, "a proof is about one port",
        "src/pliant/wire/proof.py", 'f"pliant proof {nonce} {host} {port}"', 'f"pliant proof {nonce}"',
        "box/test_thieves.py::test_a_proof_of_another_port_is_of_no_use",
    ),
    Defence(
        READ, "logs, commands inside and the environment are the owner's",
        f"{API}/identity/principal.py",
        "return (owner.uid, owner.name) == (self.account.uid, self.account.name)", "return True",
        f"{SHARED}::test_the_log_and_the_inside_of_a_job_are_its_owners",
    ),
    Defence(
        READ, "what an owner shares is for those alone who were named",
        f"{API}/identity/principal.py",
        'return bool({"project", *(f"user:{name}" for name in names)} & {*workload.shared})',
        "return True",
        f"{SHARED}::test_the_log_and_the_inside_of_a_job_are_its_owners",
    ),
    Defence(
        READ, "a stream ends when its reader loses the right",
        f"{API}/guard.py", "if time.monotonic() >= due:", "if False:",
        "api/test_streams.py::test_no_chunk_is_sent_once_the_right_is_lost",
    ),
    Defence(
        READ, "what an inference runs is changed only by those who may run commands in it",
        f"{API}/routes/workloads/submit.py",
        'check(caller, "workloads:exec", about(row, identity, board, caller))', "pass",
        "api/test_rights.py::test_on_a_shared_machine_what_an_inference_runs_is_changed_by_its_owner_alone",
    ),
    Defence(
        READ, "values of variables are in no text about a launch",
        "src/pliant/control/submit/variables.py",
        "given: tuple[tuple[str, str], ...] = field(default=(), repr=False)",
        "given: tuple[tuple[str, str], ...] = ()",
        "control/test_sealed.py::test_the_store_and_the_bundle_have_names_only",
    ),
    Defence(
        READ, "what a job runs is left out for others",
        f"{API}/identity/principal.py", "return not self.box or self.owns(workload)", "return True",
        f"{SHARED}::test_what_a_job_runs_is_its_owners_to_know",
    ),
    Defence(
        READ, "what may not be seen is as if it were not there",
        f"{API}/guard.py",
        "if not caller.may(target.seen, target.place, own=target.own, shared=target.shared):", "if False:",
        f"{SHARED}::test_without_a_role_there_are_only_jobs_of_ones_own",
    ),
    Defence(
        READ, "a route without a place asks for its right",
        f"{API}/guard.py", "if not caller.may(self.right):", "if False:",
        f"{SHARED}::test_a_limit_holds_one_account_and_its_use_is_told_to_it_alone",
    ),
    Defence(
        READ, "a job's /proc hides the processes of others",
        FOLDERS, '"hidepid=2"', '"hidepid=0"', f"{WARDEN}::test_others_are_not_seen_in_proc",
    ),
    Defence(
        READ, "/tmp, /var/tmp and /dev/shm are the job's own",
        FOLDERS, 'if (see(fd[i], onto[i], 0) < 0) broken("private folders");', "(void)fd, (void)onto;",
        f"{WARDEN}::test_temporary_folders_are_private",
    ),
    Defence(
        READ, "what the server says to a job is mounted read-only",
        FOLDERS, "see(public_fd, path, MS_RDONLY | MS_NOEXEC)", "see(public_fd, path, 0)",
        f"{WARDEN}::test_what_the_server_says_is_seen_read_only",
    ),
    Defence(
        READ, "a working directory that the user may not enter ends the start",
        LAUNCH, "if (chdir(order.cwd) < 0) {", 'if (chdir(order.cwd) < 0 && chdir("/") < 0) {',
        f"{WARDEN}::test_a_working_directory_is_opened_as_the_user",
    ),
    Defence(
        ROOT, "uids below min-uid run nothing",
        ACCOUNT, "if (uid < conf.min_uid || uid == 65534 || uid == (uid_t)-1)", "if (uid == 65534)",
        f"{WARDEN}::test_accounts_that_run_nothing",
    ),
    Defence(
        ROOT, "accounts in deny-users", ACCOUNT, "if (conf.deny[i] == uid)", "if (false)",
        f"{WARDEN}::test_accounts_that_the_configuration_or_root_s_group_keeps_out",
    ),
    Defence(
        ROOT, "accounts outside allow-group", ACCOUNT, "if (!member)", "if (false)",
        f"{WARDEN}::test_accounts_that_the_configuration_or_root_s_group_keeps_out",
    ),
    Defence(
        ROOT, "accounts in root's group", ACCOUNT, "if (who->groups[i] == 0)", "if (false)",
        f"{WARDEN}::test_accounts_that_the_configuration_or_root_s_group_keeps_out",
    ),
    Defence(
        ROOT, "accounts without a login shell", ACCOUNT, "if (!*found->pw_shell || (shell &&",
        "if (false && (shell &&",
        f"{WARDEN}::test_an_account_without_a_login_shell",
    ),
    Defence(
        ROOT, "accounts that have expired", ACCOUNT, "if (shadow && shadow->sp_expire > 0",
        "if (false && shadow->sp_expire > 0",
        f"{WARDEN}::test_an_account_that_has_expired",
    ),
    Defence(
        ROOT, "the groups of root are left behind",
        ACCOUNT,
        "if (setgroups((size_t)who->count, who->groups) < 0 || setresgid(",
        "if (setresgid(",
        f"{WARDEN}::test_a_task_is_its_user",
    ),
    Defence(
        ROOT, "no_new_privs of a task",
        LAUNCH, 'if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) broken("no_new_privs");', ";",
        f"{WARDEN}::test_a_task_is_its_user",
    ),
    Defence(
        ROOT, "the supervisor leaves root behind",
        LAUNCH, "setresuid(conf.server, conf.server, conf.server) < 0 || ", "",
        f"{WARDEN}::test_the_supervisor_has_nothing_of_the_users",
    ),
    Defence(
        ROOT, "the supervisor's environment is empty",
        LAUNCH, "execve(conf.supervisor, argv, (char *[]){NULL});",
        "execve(conf.supervisor, argv, launch->env);",
        f"{WARDEN}::test_the_supervisor_has_nothing_of_the_users",
    ),
    Defence(
        FILES, "a link in the place of a workload's folder is refused",
        FOLDERS,
        "if (lstat(path, &seen) < 0 || !S_ISDIR(seen.st_mode) || seen.st_uid != who->uid)",
        "if (lstat(path, &seen) < 0)",
        f"{WARDEN}::test_a_link_in_the_place_of_a_folder_is_refused",
    ),
    Defence(
        FILES, "each order has a process of its own", MAIN, "pid_t pid = fork();", "pid_t pid = 0;",
        f"{WARDEN}::test_an_order_that_hangs_holds_up_no_other",
    ),
    Defence(
        FILES, "the server opens no pipe, link or device in the place of a file",
        "src/pliant/engines/local/folder/regular.py",
        "os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC",
        "os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC",
        "engines/test_replaced_files.py",
    ),
    Defence(
        SQUAT, "a configuration that others can change is not read",
        CONFIG, "!(seen.st_mode & (S_IWGRP | S_IWOTH))) continue;", "true) continue;",
        f"{WARDEN}::test_a_configuration_that_others_can_change",
    ),
    Defence(
        SQUAT, "a folder in which others could put a socket is refused",
        "src/pliant/shared.py",
        "if seen.st_uid not in (0, os.geteuid()) or seen.st_mode & 0o022:", "if False:",
        f"{SHARED}::test_a_folder_in_which_others_could_put_a_socket_is_refused",
    ),
    Defence(
        SQUAT, "a state folder that others can change is refused",
        "src/pliant/store/private.py",
        "if open_to and not (mode & stat.S_ISVTX and seen.st_uid == 0):", "if False:",
        "store/test_private.py::test_a_parent_to_which_others_may_write",
    ),
    Defence(
        SQUAT, "a state folder of another account is refused",
        "src/pliant/store/private.py",
        "if seen.st_uid not in (0, os.geteuid()):", "if False:",
        "store/test_private.py::test_a_folder_of_somebody_else",
    ),
    Defence(
        SQUAT, "a name in /dev/shm that somebody made first is not used",
        "src/pliant/devices/place.py",
        "root.mkdir(mode=0o700)\n", "root.mkdir(mode=0o700, exist_ok=True)\n",
        "devices/test_place.py::test_a_name_that_somebody_made_first_is_not_used",
    ),
    Defence(
        SQUAT, "a folder of another account in shared memory is not ours",
        "src/pliant/devices/place.py",
        "stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.geteuid()", "stat.S_ISDIR(seen.st_mode)",
        "devices/test_place.py::test_a_folder_of_another_account_is_neither_used_nor_read",
    ),
    Defence(
        OUTLIVE, "what lives is ended by its group until nothing does",
        GROUP, "for (int round = 0; group_populated(); round++) {",
        "for (int round = 0; round < 0; round++) {",
        f"{WALLS}::test_what_hides_ends_with_its_job",
    ),
    Defence(
        OUTLIVE, "a supervisor ends all that is in the group of its task, at once",
        "native/supervise.c", 'if (fd >= 0 && write(fd, "1", 1) == 1) alive = 1;', "",
        f"{WALLS}::test_a_supervisor_ends_the_whole_group_at_once",
    ),
    Defence(
        OUTLIVE, "a job ends although its supervisor hangs",
        "src/pliant/engines/local/attempts.py",
        "if not self._means.launcher.boxed:\n                return", "return",
        "box/test_neighbours.py::test_a_job_is_ended_although_its_supervisor_hangs",
    ),
    Defence(
        OUTLIVE, "a task waits until somebody supervises it",
        LAUNCH, "if (go >= 0 && read(go, &byte, 1) != 1) _exit(126);", "if (go >= 0 && !byte) byte = 1;",
        f"{WALLS}::test_a_task_without_a_supervisor_does_not_begin",
    ),
    Defence(
        OUTLIVE, "an attempt that has a group does not start again",
        GROUP, "if (errno == EEXIST && tree == trees)", "if (false)",
        f"{WARDEN}::test_an_attempt_starts_once",
    ),
    Defence(
        OUTLIVE, "the group says what belongs to an attempt, not the environment of a process",
        "src/pliant/engines/local/launch/launcher.py",
        "        count = 0\n        while True:",
        "        count = processes.end(self._epoch.__self__, wanted, spare=None, waiting=waiting)\n"
        "        while True:",
        "box/test_contract.py::test_who_takes_the_environment_of_an_attempt_is_none_of_it",
    ),
    Defence(
        STARVE, "the number of processes of a job (500 instead of what it may have)",
        GROUP, "order.pids ? order.pids : 1024", "(uint64_t)500",
        f"{WALLS}::test_a_fork_bomb_stays_in_its_job",
    ),
    Defence(
        STARVE, "a job that was refused a thousand processes is ended",
        "native/supervise.c",
        "if (n > 0 && count - before < BOMB) return;", "if (n > 0) return;",
        f"{WALLS}::test_a_job_that_goes_on_to_fork_although_it_may_not_is_ended",
    ),
    Defence(
        STARVE, "the memory of a job",
        GROUP, "order.memory ? (int64_t)order.memory : INT64_MAX / 4096 * 4096;", "INT64_MAX / 4096 * 4096;",
        f"{WALLS}::test_a_hog_is_ended_at_its_limit_and_named",
    ),
    Defence(
        STARVE, "the processor is shared between jobs, not processes",
        GROUP, '{"memory", "cpu", "pids", ', '{"memory", "?", "pids", ',
        f"{WALLS}::test_who_runs_many_processes_gets_no_more_of_a_processor",
    ),
    Defence(
        STARVE, "an end is for want of memory if the kernel says so",
        GROUP, "said->oom = oom > 0 ? (uint64_t)oom : 0;", "said->oom = 1;",
        f"{WALLS}::test_sigkill_by_hand_is_no_want_of_memory",
    ),
    Defence(
        STARVE, "whole cores are a job's own where the configuration says so",
        CORES, "print(CPU_COUNT(&rest) ? &rest : &all, text);", "print(&all, text);",
        f"{WALLS}::test_whole_cores_are_a_jobs_own",
    ),
    Defence(
        STARVE, "a job stays on the cores that are its own",
        CORES, 'done = put(mine, "cpuset.cpus", "%s", text) && setxattr(', "done = setxattr(",
        f"{WALLS}::test_a_job_stays_on_its_cores",
    ),
    Defence(
        STARVE, "the log of an attempt",
        "native/supervise.c",
        "int64_t room = opt.log_max > out_log.size ? opt.log_max - out_log.size : 0;",
        "int64_t room = INT64_MAX;",
        "engines/test_local_logs.py::test_a_chatty_task_rotates_and_nothing_is_read_twice",
    ),
    Defence(
        STARVE, "commands of an account inside jobs",
        f"{API}/streaming/sessions.py",
        "running = sum(entry.session.exit_code() is None for entry in entries)",
        "running = 0 * len(entries)",
        f"{SHARED}::test_one_account_has_so_many_commands_inside_jobs_at_a_time",
    ),
    Defence(
        STARVE, "streams of an account",
        f"{API}/pace.py", "if self._most and self._held[person] + beside >= self._most:", "if False:",
        f"{SHARED}::test_one_account_reads_so_many_streams_at_a_time",
    ),
    Defence(
        STARVE, "tasks of a workload",
        f"{API}/pace.py", "if self.tasks and count > self.tasks:", "if False:",
        f"{SHARED}::test_a_new_box_has_limits_for_everybody_and_for_one_workload",
    ),
    Defence(
        STARVE, "jobs of a person that wait",
        "src/pliant/control/state/limits.py",
        "if has + len(made) > it.waiting:", "if False:",
        "control/test_limits.py::test_how_many_may_wait",
    ),
    Defence(
        STARVE, "GPUs of a person at a time",
        "src/pliant/control/state/limits.py",
        "if it.running is not None and self._held(row.user, it.project) + need > it.running:", "if False:",
        "control/test_limits.py::test_gpus_at_once",
    ),
    Defence(
        STARVE, "GPU hours of a person in 30 days",
        "src/pliant/control/state/limits.py",
        "if it.gpu_ms is not None and (until := self._until(row.user, it)) is not None:",
        "if (until := None) is not None:",
        "control/test_limits.py::test_gpu_hours_of_30_days",
    ),
    Defence(
        STARVE, "the environment of a job",
        "src/pliant/control/submit/variables.py", "if size > MOST_BYTES:", "if False:",
        "control/test_sealed.py::test_an_environment_has_128_kib_at_most",
    ),
    Defence(
        STARVE, "the body of a request",
        f"{API}/errors.py", 'taken += len(message.get("body", b""))', "taken += 0",
        "api/test_errors.py::test_a_body_that_is_too_large",
    ),
    Defence(
        STARVE, "a request that does not come whole",
        f"{API}/connections/peer.py",
        "self._arriving: asyncio.TimerHandle | None = self.loop.call_later(ARRIVES, self._too_slow)",
        "self._arriving: asyncio.TimerHandle | None = None",
        "app/test_slow.py::test_a_request_that_does_not_come_whole_is_given_up",
    ),
    Defence(
        STARVE, "connections of an account",
        f"{API}/connections/peer.py", "if self.counted[uid] >= self.most:", "if False:",
        f"{SHARED}::test_one_account_has_so_many_connections_and_others_are_served",
    ),
    Defence(
        STARVE, "submissions of an account in a second",
        f"{API}/routes/workloads/submit.py", "here.pace.take(caller.person)", "pass",
        f"{SHARED}::test_one_account_submits_so_fast_and_others_are_served",
    ),
    Defence(
        CARDS, "the program on a group opens what is on its list",
        WALL, "op(BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 0)", "op(BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 1)",
        f"{WALLS}::test_a_job_opens_the_cards_that_it_has",
    ),
    Defence(
        CARDS, "a card is not among the usual devices",
        WALL, "if (!within(cards, known, usual[i])) list[n++] = usual[i];", "list[n++] = usual[i];",
        f"{WALLS}::test_a_job_opens_the_cards_that_it_has",
    ),
    Defence(
        CARDS, "limits and cards of a running job change",
        MAIN, 'runs");\n        group_limit();', 'runs");',
        f"{WALLS}::test_a_limit_that_is_changed_holds",
    ),
    Defence(
        CARDS, "parts of a card have one owner",
        f"{API}/routes/workloads/submit.py", "if caller.box and caller.account is not None:", "if False:",
        f"{SHARED}::test_parts_of_a_gpu_are_shared_by_one_account_alone",
    ),
    Defence(
        CARDS, "strays are ended where the configuration says so",
        MAIN, "if (!conf.stop_strays)", "if (false)",
        f"{WALLS}::test_strays_are_left_alone_unless_configured",
    ),
    Defence(
        CARDS, "a stray is known by its number and its start",
        MAIN, "if (process_start(order.number) != order.pids)", "if (false)",
        f"{WALLS}::test_strays_are_left_alone_unless_configured",
    ),
    Defence(
        CARDS, "who holds no card is no stray", MAIN, "if (!holds)", "if (false)",
        f"{WALLS}::test_who_holds_no_card_and_who_is_the_system_is_no_stray",
    ),
    Defence(
        CARDS, "who belongs to a job is no stray", MAIN, "if (n <= 0 || strstr(text, below))", "if (n <= 0)",
        f"{WALLS}::test_who_holds_no_card_and_who_is_the_system_is_no_stray",
    ),
    Defence(
        TAKEN, "the socket of the warden is the server's alone",
        MAIN, "mode_t before = umask(0177);", "mode_t before = umask(0);",
        f"{WARDEN}::test_others_do_not_reach_it",
    ),
    Defence(
        TAKEN, "the warden asks the kernel who connects",
        MAIN, "|| peer.uid != conf.server) {", ") {", f"{WARDEN}::test_others_do_not_reach_it",
    ),
    Defence(
        TAKEN, "orders of a leader that was replaced are refused",
        MAIN, "if (order.epoch < seen && order.verb != LIST)", "if (false)",
        f"{WARDEN}::test_leaders_that_were_replaced",
    ),
    Defence(
        TAKEN, "ids are plain",
        MAIN, "== n && *text != '-';", "<= n;", f"{WARDEN}::test_orders_that_are_none",
    ),
    Defence(
        TAKEN, "a card that the node does not have is refused",
        WALL, "if (!within(cards, known, order.device[i]))", "if (false)",
        f"{WARDEN}::test_orders_that_are_none",
    ),
    Defence(
        TAKEN, "a shared server that has root ends at its start",
        "src/pliant/shared.py", "if os.geteuid() == 0:", "if False:",
        f"{SHARED}::test_a_shared_server_is_nobody_with_rights",
    ),
)  # fmt: skip


def table() -> str:
    """The table as the page shows it."""
    rows = ["| attack | defence that was taken out | test that failed then |", "|---|---|---|"]
    for one in DEFENCES:
        rows.append(f"| {one.attack} | {one.taken_out} | `{one.test}` |")
    return "\n".join(rows)
