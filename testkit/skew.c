// Preloaded: every wall clock of the process is SKEW_S seconds ahead (behind, where negative), or, while there is a file
// SKEW_FILE, as many as that says.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long skew(void) {
    const char *text = getenv("SKEW_S"), *path = getenv("SKEW_FILE");
    char found[32];
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0) {
        ssize_t size = read(file, found, sizeof found - 1);
        close(file);
        found[size > 0 ? size : 0] = 0;
        text = found;
    }
    return text ? atol(text) : 0;
}

int clock_gettime(clockid_t which, struct timespec *found) {
    static int (*theirs)(clockid_t, struct timespec *);
    if (!theirs) theirs = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int code = theirs(which, found);
    if (code == 0 && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) found->tv_sec += skew();
    return code;
}

int gettimeofday(struct timeval *restrict found, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    found->tv_sec = now.tv_sec;
    found->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *found) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (found) *found = now.tv_sec;
    return now.tv_sec;
}
