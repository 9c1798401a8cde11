/* The floor: what a supervisor of processes costs that does nothing else, and the child that all of them are measured
 * with.
 *
 *   floor supervise FILE                              start each line of FILE, again whenever it ends, until SIGTERM
 *   floor child LOG UNIT LIVES_MS CODE [FIRST_MS]     note the first instant and the last; live so long in between
 *
 * A child that lives -1 ms waits for a signal. FIRST_MS is for its first life, where that is another one. It says
 * WATCHDOG=1 where it is asked to.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { UNITS_MAX = 4096, WORDS_MAX = 16, LINE_MAX_ = 4096 };

extern char **environ;

static long long now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000LL + at.tv_nsec;
}

/* The child. */

static void note(int log, char what, long long at, const char *unit) {
    char line[256];
    int size = snprintf(line, sizeof line, "%c %lld %d %s\n", what, at, getpid(), unit);
    if (write(log, line, size) != size) _exit(99);
}

static void beat(const char *path, long long every_ns) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t size = strlen(path);
    if (size >= sizeof to.sun_path) _exit(98);
    memcpy(to.sun_path, path, size);
    if (path[0] == '@') to.sun_path[0] = 0;
    int out = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct timespec pause = {every_ns / 1000000000, every_ns % 1000000000};
    for (;;) {
        sendto(out, "WATCHDOG=1", 10, 0, (struct sockaddr *)&to, offsetof(struct sockaddr_un, sun_path) + size);
        nanosleep(&pause, NULL);
    }
}

static int child(int count, char **words) {
    long long began = now();
    const char *unit = words[1];
    long lives = atol(words[2]);
    int log = open(words[0], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    note(log, 'B', began, unit);
    if (write(1, "started\n", 8) < 0) { /* nobody captures it */ }
    if (count > 4) {
        char mark[LINE_MAX_];
        snprintf(mark, sizeof mark, "%s.%s", words[0], unit);
        int first = open(mark, O_WRONLY | O_CREAT | O_EXCL, 0600);
        if (first >= 0) lives = atol(words[4]);
    }
    const char *socket = getenv("NOTIFY_SOCKET"), *watchdog = getenv("WATCHDOG_USEC");
    if (socket && watchdog) beat(socket, atoll(watchdog) * 1000 / 2);
    if (lives < 0) for (;;) pause();
    struct timespec length = {lives / 1000, lives % 1000 * 1000000};
    if (lives) nanosleep(&length, NULL);
    note(log, 'E', now(), unit);
    _exit(atoi(words[3]));
}

/* The supervisor. */

static char lines[UNITS_MAX][LINE_MAX_];
static char *commands[UNITS_MAX][WORDS_MAX + 1];
static pid_t pids[UNITS_MAX];
static int pidfds[UNITS_MAX];
static int events, nothing;
static volatile sig_atomic_t over;

static void stop(int number) { (void)number; over = 1; }

static void begin(int place) {
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    posix_spawn_file_actions_init(&files);
    for (int number = 0; number < 3; number++) posix_spawn_file_actions_adddup2(&files, nothing, number);
    posix_spawnattr_init(&how);
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSID);
    if (posix_spawn(&pids[place], commands[place][0], &files, &how, commands[place], environ)) exit(97);
    posix_spawnattr_destroy(&how);
    posix_spawn_file_actions_destroy(&files);
    pidfds[place] = syscall(SYS_pidfd_open, pids[place], 0);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = place};
    if (pidfds[place] < 0 || epoll_ctl(events, EPOLL_CTL_ADD, pidfds[place], &event)) exit(96);
}

static int supervise(const char *path) {
    int units = 0;
    FILE *file = fopen(path, "r");
    if (!file) return 95;
    while (units < UNITS_MAX && fgets(lines[units], LINE_MAX_, file)) {
        char **words = commands[units];
        for (char *word = strtok(lines[units], " \n"); word && words - commands[units] < WORDS_MAX; word = strtok(NULL, " \n"))
            *words++ = word;
        units += commands[units][0] != NULL;
    }
    fclose(file);
    struct sigaction action = {.sa_handler = stop};
    sigaction(SIGTERM, &action, NULL);
    nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    events = epoll_create1(EPOLL_CLOEXEC);
    for (int place = 0; place < units; place++) begin(place);
    struct epoll_event ready[64];
    while (!over) {
        int count = epoll_wait(events, ready, 64, -1);
        for (int each = 0; each < count && !over; each++) {
            int place = ready[each].data.u32;
            siginfo_t info;
            waitid(P_PIDFD, pidfds[place], &info, WEXITED);
            /* Not by closing alone: a child that is just becoming its program may still hold it. */
            epoll_ctl(events, EPOLL_CTL_DEL, pidfds[place], NULL);
            close(pidfds[place]);
            begin(place);
        }
    }
    for (int place = 0; place < units; place++) kill(-pids[place], SIGKILL);
    while (wait(NULL) > 0 || errno != ECHILD) {}
    return 0;
}

int main(int count, char **words) {
    if (count >= 6 && !strcmp(words[1], "child")) return child(count - 2, words + 2);
    if (count == 3 && !strcmp(words[1], "supervise")) return supervise(words[2]);
    fputs("usage: floor supervise FILE | floor child LOG UNIT LIVES_MS CODE [FIRST_MS]\n", stderr);
    return 2;
}
